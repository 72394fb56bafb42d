"""The decision to load: never much worse than the better of always and never, quick, and explained."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.decide import Gate, Mode, Prefill, TierSpeed
from sgkv.decide.gate import Reach

PAGE_TOKENS = 64
LLAMA_8B = Prefill(40_000, 120_000)
PAGE_BYTES = PAGE_TOKENS * 131_072


def taught(bandwidth: float, latency: float = 0.0) -> TierSpeed:
    speed = TierSpeed()
    for size in (1 << 20, 8 << 20, 64 << 20, 512 << 20):
        speed.began(size)
        speed.ended(size, latency + size / bandwidth, whole=True)
    return speed


@given(st.floats(1e-5, 1e-1), st.floats(1e8, 5e10), st.integers(1 << 16, 1 << 34))
def test_latency_and_bandwidth_are_told_apart(latency, bandwidth, size) -> None:
    assert taught(bandwidth, latency).seconds(size) == pytest.approx(latency + size / bandwidth, rel=0.05)


def test_reads_under_way_come_first() -> None:
    speed = taught(1e9)
    speed.began(1 << 30)
    assert speed.seconds(1 << 20) > 1.0
    speed.ended(1 << 30, 1.0, whole=False)
    assert speed.seconds(1 << 20) < 0.01


def test_a_read_that_failed_tells_no_speed() -> None:
    speed = taught(1e9)
    before = speed.seconds(1 << 24)
    speed.began(1 << 24)
    speed.ended(1 << 24, 60.0, whole=False)
    assert speed.seconds(1 << 24) == before


@pytest.mark.parametrize(("quantile", "least", "most"), [(0.5, 0.9, 1.1), (0.95, 1.5, 3.2)])
def test_a_late_read_is_what_the_quantile_says(quantile, least, most) -> None:
    """One read in ten takes three times as long."""
    random, speed = Random(1), TierSpeed(quantile)
    for _ in range(2000):
        size = random.choice([1, 2, 4, 8]) << 20
        speed.began(size)
        speed.ended(size, size / 1e9 * (3 if random.random() < 0.1 else 1), whole=True)
    mean = 1.2 * (4 << 20) / 1e9
    assert least / 1.2 < speed.seconds(4 << 20) / mean < most


def test_far_enough_is_loaded_and_too_near_is_not() -> None:
    """LMCache's example: 100K tokens are worth 0.8 s; 2K tokens are not worth 120 ms, computed in 60."""
    prefill = Prefill(33_000, 300_000)
    gate = Gate(Mode.ON, prefill, {"s3": taught(1.64e10, 0.104)})
    assert gate.decide([Reach("s3", 100_000 // 64)], PAGE_BYTES, 64).pages == 100_000 // 64
    assert gate.decide([Reach("s3", 2_000 // 64)], PAGE_BYTES, 64).pages == 0


def test_a_slow_tier_does_not_spoil_what_a_fast_one_has() -> None:
    gate = Gate(Mode.ON, LLAMA_8B, {"disk": taught(1e10), "s3": taught(1e7)})
    decision = gate.decide([Reach("disk", 100), Reach("s3", 200)], PAGE_BYTES, PAGE_TOKENS)
    assert (decision.pages, decision.hit) == (100, 200)
    assert "load 100 of 200 pages" in decision.explain()
    assert gate.last is decision


def test_a_tier_that_is_not_known_is_loaded_from_to_know_it() -> None:
    decision = Gate(Mode.ON, LLAMA_8B, {"s3": TierSpeed()}).decide([Reach("s3", 9)], PAGE_BYTES, 64)
    assert decision.pages == 9


def test_one_in_many_is_loaded_all_the_same_and_finds_a_tier_that_got_faster() -> None:
    speed = taught(1e7)
    gate = Gate(Mode.ON, LLAMA_8B, {"s3": speed})
    loads = 0
    for _ in range(20_000):
        decision = gate.decide([Reach("s3", 64)], PAGE_BYTES, PAGE_TOKENS)
        if decision.pages:
            loads += 1
            speed.began(64 * PAGE_BYTES)
            speed.ended(64 * PAGE_BYTES, 64 * PAGE_BYTES / 5e10, whole=True)
    assert loads > 100
    assert not decision.trial


def test_nothing_there_is_nothing_to_load() -> None:
    assert Gate(Mode.ON, LLAMA_8B, {}).decide([], PAGE_BYTES, PAGE_TOKENS).pages == 0
