"""Searching a chain on a remote tier: right for every length, few rounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.store.lookup import leading_run


@given(st.integers(0, 2000), st.data())
def test_finds_the_leading_run(total, data):
    present = data.draw(st.integers(0, total))
    keys = [str(index) for index in range(total)]
    assert leading_run(lambda some: [int(key) < present for key in some], keys) == present


class CountingTier:
    """A chain whose first `present` keys are there."""

    def __init__(self, present: int) -> None:
        self.present, self.rounds = present, 0

    def probe(self, keys):
        self.rounds += 1
        return [int(key) < self.present for key in keys]


@pytest.mark.parametrize("total", [1, 4, 100, 400, 1563])
def test_takes_three_rounds_for_400_keys_and_four_for_1563(total):
    keys = [str(index) for index in range(total)]
    tiers = [CountingTier(present) for present in range(total + 1)]
    assert [leading_run(tier.probe, keys) for tier in tiers] == list(range(total + 1))
    assert max(tier.rounds for tier in tiers) <= (3 if total <= 400 else 4)


def test_a_complete_chain_takes_one_round():
    asked = []

    def probe(keys):
        asked.append(len(keys))
        return [True] * len(keys)

    assert leading_run(probe, [str(index) for index in range(400)]) == 400
    assert len(asked) == 1
