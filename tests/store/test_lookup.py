"""Searching a chain on a remote tier: right for every length, few rounds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.base import Backend, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper
from sgkv.store.lookup import leading_run
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from tests.model.world import CHUNK_PAGES, LAYOUT, NAMESPACE, PAGE_TOKENS, filled, sequence


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
def test_takes_two_rounds_for_400_keys_and_three_for_1563(total):
    keys = [str(index) for index in range(total)]
    tiers = [CountingTier(present) for present in range(total + 1)]
    assert [leading_run(tier.probe, keys) for tier in tiers] == list(range(total + 1))
    assert max(tier.rounds for tier in tiers) <= (2 if total <= 400 else 3)


def test_a_complete_chain_takes_one_round():
    asked = []

    def probe(keys):
        asked.append(len(keys))
        return [True] * len(keys)

    assert leading_run(probe, [str(index) for index in range(400)]) == 400
    assert len(asked) == 1


class Remote(Wrapper):
    """A tier without an index at hand, that counts how often it is asked."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.capabilities = replace(inner.capabilities, local_index=False)
        self.rounds = 0

    def probe(self, keys, deadline=None) -> tuple[list[bool], Status]:
        self.rounds += 1
        return self.inner.probe(keys, deadline)


def test_a_lookup_of_400_chunks_asks_a_remote_tier_three_times():
    """Twice for where the chain ends, once for single pages there."""
    hashes = sequence(1, 400 * CHUNK_PAGES)
    remote = Remote(CpuBackend(64 << 20, prefault=False))
    store = Store([Tier("far", remote)], StoreOptions(chunk_tokens=PAGE_TOKENS * CHUNK_PAGES))
    writer, seen = store.open(NAMESPACE, LAYOUT, "test"), set()
    for stored in (0, 1, 3, 20, 21, 255, 277, 399, 400):
        pages = hashes[: stored * CHUNK_PAGES]
        assert all(writer.set(Span(pages, ()), filled(pages), Deadline(20)))
        remote.rounds = 0
        found = store.open(NAMESPACE, LAYOUT, "test").lookup(Span(hashes, ()), Deadline(20))
        assert found.pages == len(pages)
        seen.add(remote.rounds)
    store.close()
    assert max(seen) == 3
