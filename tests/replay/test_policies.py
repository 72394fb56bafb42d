"""Policies on traffic: the reuse-aware one beats LRU where that is possible, and nothing beats Belady."""

from __future__ import annotations

import pytest

from sgkv.backends.eviction import EvictionPolicy, Lru, Reuse, S3Fifo
from sgkv.replay.caching import Belady, Clock, play
from sgkv.replay.generate import Mix, generate
from sgkv.replay.trace import Request, unique_tokens

pytestmark = pytest.mark.slow

MAKERS = {"lru": lambda _: Lru(), "s3fifo": lambda _: S3Fifo(), "reuse": Reuse}


def hits(requests: list[Request], share: float, make) -> int:
    return sum(play(requests, share * unique_tokens(requests), make).hits)


@pytest.fixture(scope="module", params=list(Mix))
def mix(request) -> list[Request]:
    return generate(request.param, 900)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_no_policy_beats_the_one_that_knows_the_future(mix, share) -> None:
    best = hits(mix, share, lambda _: Belady(mix))
    assert all(hits(mix, share, make) <= best for make in MAKERS.values())


@pytest.mark.parametrize("share", [0.05, 0.1])
def test_reuse_is_not_far_from_lru_where_lru_is_right_and_better_elsewhere(mix, share) -> None:
    lru, reuse = hits(mix, share, MAKERS["lru"]), hits(mix, share, Reuse)
    best = hits(mix, share, lambda _: Belady(mix))
    assert reuse >= lru - 0.05 * (best - lru)


def test_with_room_for_everything_policies_are_the_same(mix) -> None:
    assert len({hits(mix, 1.0, make) for make in MAKERS.values()}) == 1


def test_a_cache_never_holds_more_than_its_capacity(mix) -> None:
    room = unique_tokens(mix) // 10
    for make in MAKERS.values():
        cached = play(mix, room, make)
        assert cached.written - cached.evicted <= room


def test_belady_evicts_what_is_used_last() -> None:
    stream = ["a", "b", "c", "a", "b", "c", "a"]
    requests = [Request(float(at), 512, 0, (block,)) for at, block in enumerate(stream)]
    assert play(requests, 1024, lambda _: Belady(requests)).hits == [0, 0, 0, 512, 0, 512, 0]
    assert not any(play(requests, 1024, lambda _: Lru()).hits)


class Counting(EvictionPolicy):
    """Notes the time it was asked at."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seen = clock, []

    def admit(self, key, size, *, cold=False, after=None):
        self.seen.append((key, size, after, self.clock()))

    def touch(self, keys):
        list(keys)

    def remove(self, key):
        raise AssertionError(key)

    def victims(self, limit):
        raise AssertionError(limit)


def test_a_policy_is_told_sizes_chains_and_time() -> None:
    told = []

    def make(clock: Clock) -> EvictionPolicy:
        told.append(Counting(clock))
        return told[0]

    play([Request(7.0, 600, 1, ("a", "b"))], 10_000, make)
    assert told[0].seen == [("a", 512, None, 7.0), ("b", 88, "a", 7.0)]
