"""A tier that is slow, hangs, fails or lies: right answers, in bounded time, and the reason counted."""

from pathlib import Path

import pytest

from tests.e2e.rig import PATIENT, Folder, Settings, assert_same, prompt, settings
from tests.e2e.served import Served

pytestmark = pytest.mark.server

SEEDS = range(70, 74)
PAGES = 31
"""Whole pages of a prompt."""
NOTHING, EVERYTHING = [0] * len(SEEDS), [64 * PAGES] * len(SEEDS)
DEADLINES = {"contains": 0.25, "get": 1.0, "put": 1.0}
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
    """A store of one disk tier in trouble."""
    options = {"deadlines": DEADLINES, "breaker": {"failures": 1000}, **disk}
    return settings(folder, cpu=False, **options)


def cached_by_right_answers_in_time(llama: Served, plain) -> list[int]:
    """Ask for every prompt; the cached tokens of each."""
    answers = {seed: llama.again(prompt(seed)) for seed in SEEDS}
    for seed, answer in answers.items():
        assert_same(answer, plain[seed])
        assert answer.ttft_s < sum(DEADLINES.values()) + SLACK
    assert llama.server.healthy()
    return [answer.cached_tokens for answer in answers.values()]


@pytest.mark.parametrize(("fault", "reason"), [("error", "tier_error"), ("hang", "timeout")])
def test_a_tier_that_always_fails(fault: str, reason: str, llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored, faults={fault: 1.0}))
    with llama.unserved() as reasons:
        assert cached_by_right_answers_in_time(llama, plain) == NOTHING
    assert reasons.total() == PAGES * len(SEEDS)
    assert reason in reasons
    assert reasons.keys() <= {reason, "breaker_open"}


def test_a_tier_that_fails_is_left_alone(llama: Served, stored: Folder, plain):
    llama.attach(trouble(stored, faults={"error": 1.0}, breaker={"failures": 2, "cooldown": 60.0}))
    with llama.unserved() as reasons:
        assert cached_by_right_answers_in_time(llama, plain) == NOTHING
    assert reasons.keys() == {"tier_error", "breaker_open"}


@pytest.mark.parametrize(
    ("faults", "reason"),
    [({"hang": 0.3, "seed": 2}, "timeout"), ({"error": 0.3, "absent": 0.2, "seed": 1}, "tier_error")],
)
def test_a_tier_that_fails_now_and_then(
    faults: dict[str, float], reason: str, llama: Served, stored: Folder, plain
):
    llama.attach(trouble(stored, faults=faults))
    with llama.unserved() as reasons:
        cached_by_right_answers_in_time(llama, plain)
    assert reason in reasons
    assert reasons.keys() <= {reason, "absent", "breaker_open"}


def test_a_tier_that_returns_wrong_bits(llama: Served, tmp_path: Path, plain):
    """In a folder of its own: what fails its check is taken out of use."""
    folder, ids = Folder(tmp_path / "kv"), prompt(SEEDS[0])
    llama.attach(settings(folder))
    llama.cold(ids, folder)
    llama.attach(trouble(folder, deadlines=PATIENT, faults={"corrupt": 1.0}))
    with llama.unserved() as reasons:
        answer = llama.again(ids)
    assert_same(answer, plain[SEEDS[0]])
    assert reasons.keys() == {"corrupt"}


def test_a_tier_slower_than_its_deadline(llama: Served, stored: Folder, plain):
    """The first read takes up the link for so long that lookups after it time out too."""
    llama.attach(trouble(stored, simulate={"bandwidth": "1MiB"}))
    with llama.unserved() as reasons:
        assert cached_by_right_answers_in_time(llama, plain) == NOTHING
    assert reasons == {"timeout": PAGES * len(SEEDS)}


def test_a_slow_tier_serves_what_it_has_in_time(llama: Served, stored: Folder, plain):
    slow = {"latency": 0.02, "bandwidth": "16MiB"}
    llama.attach(trouble(stored, deadlines=PATIENT, simulate=slow))
    assert cached_by_right_answers_in_time(llama, plain) == EVERYTHING


def test_afterwards_everything_is_as_before(llama: Served, stored: Folder, plain):
    llama.attach(settings(stored, cpu=False))
    assert cached_by_right_answers_in_time(llama, plain) == EVERYTHING
    assert not stored.temps()
    assert not stored.quarantined()
