"""Whose prompts are loaded, and when nobody's are."""

from __future__ import annotations

import random

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.config import ConfigError, load, resolve
from sgkv.decide.rollout import Rollout, RolloutMode
from sgkv.reasons import MissReason
from sgkv.store.build import build_store
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from tests.model.world import LAYOUT, NAMESPACE, blank, filled, sequence

SECONDS = 20.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pages(count: int) -> list[str]:
    source = random.Random(1)
    return [source.randbytes(32).hex() for _ in range(count)]


@pytest.mark.parametrize(
    ("percent", "least", "most"), [(0.0, 0, 0), (10.0, 70, 130), (50.0, 440, 560), (100.0, 1000, 1000)]
)
def test_about_as_many_prompts_as_it_says_and_always_the_same(percent: float, least: int, most: int) -> None:
    rollout = Rollout(RolloutMode.PERCENT, percent=percent)
    let = [rollout.lets(page) for page in pages(1000)]
    assert least <= sum(let) <= most
    assert let == [rollout.lets(page) for page in pages(1000)]


def test_more_percent_lets_the_same_and_others() -> None:
    some, more = (Rollout(RolloutMode.PERCENT, percent=percent) for percent in (10.0, 30.0))
    assert all(more.lets(page) for page in pages(1000) if some.lets(page))


def test_reads_that_fail_or_are_late_stop_loading_for_a_while() -> None:
    for bad in ((0.0, MissReason.TIMEOUT), (9.0, None)):
        clock = Clock()
        rollout = Rollout(RolloutMode.ALL, most_failed=0.1, slowest=1.0, window=40, pause=60, clock=clock)
        for _ in range(40):
            rollout.note(0.1, [None, MissReason.ABSENT])
        assert rollout.lets(pages(1)[0])
        for _ in range(5):
            rollout.note(bad[0], [None, bad[1]])
        assert rollout.paused
        assert not rollout.lets(pages(1)[0])
        clock.now = 61
        assert rollout.lets(pages(1)[0])
        assert rollout.pauses == 1


def test_a_few_reads_prove_nothing() -> None:
    rollout = Rollout(RolloutMode.ALL, most_failed=0.1)
    for _ in range(10):
        rollout.note(0.0, [MissReason.TIER_ERROR])
    assert not rollout.paused


def opened(tmp_path, **rollout: object):
    tier = {"type": "disk", "path": str(tmp_path / "kv"), "capacity": "64MiB", "min_free": 0}
    settings = {"chunk_tokens": 16, "tiers": [tier], "rollout": rollout}
    return build_store(resolve(load(settings, environ={}).config))


def test_in_shadow_everything_is_stored_and_counted_and_nothing_is_loaded(tmp_path) -> None:
    hashes = sequence(1, 16)
    store = opened(tmp_path, mode="shadow")
    session = store.open(NAMESPACE, LAYOUT, "test")
    assert all(session.set(Span(hashes, ()), filled(hashes), Deadline(SECONDS)))
    found = session.lookup(Span(hashes, ()), Deadline(SECONDS))
    assert (found.pages, found.reason) == (0, MissReason.HELD_BACK)
    later = session.lookup(Span(hashes[4:], hashes[:4]), Deadline(SECONDS))
    assert later.pages == 0
    assert store.counters.get("held_back_tokens") == (16 + 12) * LAYOUT.tokens
    store.close()
    store = opened(tmp_path)
    assert store.open(NAMESPACE, LAYOUT, "test").lookup(Span(hashes, ()), Deadline(SECONDS)).pages == 16
    store.close()


def test_a_prompt_stays_on_its_side_wherever_its_lookup_begins(tmp_path) -> None:
    store = opened(tmp_path, mode="percent", percent=50)
    session = store.open(NAMESPACE, LAYOUT, "test")
    sides = set()
    for seed in range(12):
        hashes = sequence(seed, 8)
        assert all(session.set(Span(hashes, ()), filled(hashes), Deadline(SECONDS)))
        whole = session.lookup(Span(hashes, ()), Deadline(SECONDS)).pages == 8
        assert (session.lookup(Span(hashes[4:], hashes[:4]), Deadline(SECONDS)).pages == 4) is whole
        sides.add(whole)
    assert sides == {True, False}
    store.close()


def test_a_tier_that_fails_what_it_promised_is_left_alone(tmp_path) -> None:
    hashes = sequence(1, 16)
    disk = DiskBackend(tmp_path / "kv", 64 << 20, min_free_bytes=0)
    failing = Faulty(disk, [FaultRule(Fault.STATUS, ops=frozenset({"get"}))])
    rollout = Rollout(RolloutMode.ALL, most_failed=0.2, window=20)
    store = Store([Tier("disk", failing)], StoreOptions(chunk_tokens=16), rollout=rollout)
    session = store.open(NAMESPACE, LAYOUT, "test")
    assert all(session.set(Span(hashes, ()), filled(hashes), Deadline(SECONDS)))
    assert session.lookup(Span(hashes, ()), Deadline(SECONDS)).pages == 16
    for _ in range(20):
        assert session.get(Span(hashes, ()), blank(16), Deadline(SECONDS)) == [MissReason.TIER_ERROR] * 16
    assert session.lookup(Span(hashes, ()), Deadline(SECONDS)).reason is MissReason.HELD_BACK
    assert store.counters.get("rollout_pauses") == 1
    store.close()


def test_bad_settings_name_the_field() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.percent"):
        load({"rollout": {"mode": "percent", "percent": 0}}, environ={})
