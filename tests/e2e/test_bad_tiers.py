"""A tier that is slow, hangs, fails or lies: right answers, in bounded time, and the reason counted."""

from pathlib import Path

import pytest

from tests.e2e.rig import Folder, Settings, assert_same, prompt, settings
from tests.e2e.served import Served

pytestmark = pytest.mark.server

SEEDS = range(70, 74)
DEADLINES = {"contains": 0.05, "get": 1.0, "put": 1.0}
SLACK = 4.0
"""Seconds for the prefill itself, on cores that others use too."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, llama: Served) -> Folder:
    """A folder that holds the prompts of `SEEDS`."""
    folder = Folder(tmp_path_factory.mktemp("stored") / "kv")
    llama.attach(settings(folder))
    for seed in SEEDS:
        llama.cold(prompt(seed), folder)
    return folder


@pytest.fixture(scope="module")
def plain(llama: Served, stored: Folder):
    """The answers without a store, by seed."""
    return {seed: llama.plain(prompt(seed)) for seed in SEEDS}


def trouble(folder: Folder, **disk: object) -> Settings:
    """A store of one disk tier in trouble; the breaker stays out of it."""
    return settings(folder, cpu=False, deadlines=DEADLINES, breaker={"failures": 1000}, **disk)


def answers_are_right_and_in_time(llama: Served, plain) -> list[int]:
    """Ask for every prompt; how many tokens of each were cached."""
    cached = []
    for seed in SEEDS:
        answer = llama.again(prompt(seed))
        assert_same(answer, plain[seed])
        assert answer.ttft_s < sum(DEADLINES.values()) + SLACK
        cached.append(answer.cached_tokens)
    assert llama.server.healthy()
    return cached


def test_a_tier_that_always_fails(llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored, faults={"error": 1.0}))
    with llama.counting("lookup_pages", "result") as looked_up:
        assert answers_are_right_and_in_time(llama, plain) == [0] * len(SEEDS)
    assert looked_up == {"tier_error": 31 * len(SEEDS)}


def test_a_tier_that_fails_is_left_alone(llama: Served, stored: Folder, plain):
    breaker = {"failures": 2, "cooldown": 60.0}
    llama.attach(settings(stored, cpu=False, faults={"error": 1.0}, breaker=breaker))
    with llama.counting("lookup_pages", "result") as looked_up:
        assert answers_are_right_and_in_time(llama, plain) == [0] * len(SEEDS)
    assert looked_up.keys() == {"tier_error", "breaker_open"}


def test_a_tier_that_hangs(llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored, faults={"hang": 1.0}))
    with llama.counting("lookup_pages", "result") as looked_up:
        assert answers_are_right_and_in_time(llama, plain) == [0] * len(SEEDS)
    assert looked_up == {"timeout": 31 * len(SEEDS)}


def test_a_tier_that_hangs_now_and_then(llama: Served, stored: Folder, plain):
    """With this seed some lookups pass and the reads after them hang."""
    llama.attach(trouble(stored, faults={"hang": 0.3, "seed": 2}))
    with llama.counting("miss_pages", "reason") as missed:
        answers_are_right_and_in_time(llama, plain)
    assert missed.keys() == {"timeout"}


def test_a_tier_that_fails_now_and_then(llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored, faults={"error": 0.3, "absent": 0.2, "seed": 1}))
    with llama.counting("lookup_pages", "result") as looked_up:
        answers_are_right_and_in_time(llama, plain)
    assert looked_up.keys() >= {"hit", "tier_error"}


def test_a_tier_that_returns_wrong_bits(llama: Served, tmp_path: Path, plain):
    """Into a folder of its own: what fails its check is taken out of use."""
    folder = Folder(tmp_path / "kv")
    llama.attach(settings(folder))
    llama.cold(prompt(SEEDS[0]), folder)
    llama.attach(trouble(folder, faults={"corrupt": 1.0}))
    with llama.counting("miss_pages", "reason") as missed:
        answer = llama.again(prompt(SEEDS[0]))
    assert_same(answer, plain[SEEDS[0]])
    assert missed.keys() == {"corrupt"}


def test_a_tier_slower_than_its_deadline(llama: Served, stored: Folder, plain):
    """The first read takes up the link for so long that lookups after it time out too."""
    llama.attach(trouble(stored, simulate={"bandwidth": "1MiB"}))
    with llama.counting("lookup_pages", "result") as found, llama.counting("miss_pages", "reason") as missed:
        assert answers_are_right_and_in_time(llama, plain) == [0] * len(SEEDS)
    assert missed == {"timeout": found["hit"]}
    assert found.keys() == {"hit", "timeout"}


def test_a_slow_tier_serves_what_it_has_in_time(llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored, simulate={"latency": 0.02, "bandwidth": "16MiB"}))
    assert answers_are_right_and_in_time(llama, plain) == [1984] * len(SEEDS)


def test_afterwards_everything_is_as_before(llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored))
    assert answers_are_right_and_in_time(llama, plain) == [1984] * len(SEEDS)
    assert not stored.temps()
    assert not stored.quarantined()
