"""What of each prompt is there when it comes, under a policy and a capacity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from sgkv.backends.eviction import EvictionPolicy
from sgkv.replay.trace import Request

_NEVER = float("inf")


@dataclass(slots=True)
class Cached:
    """One run of a policy over a trace. Amounts are in tokens, which take bytes in proportion."""

    hits: list[int] = field(default_factory=list)
    """Leading tokens of each request that were there."""
    written: int = 0
    evicted: int = 0


class Belady(EvictionPolicy):
    """What is used again last, or never, goes first: the most that any policy can get.

    Of Belady, "A study of replacement algorithms for a virtual-storage computer" (1966); it must know the
    future. Parents are used no later than their children, so chains go from their ends.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self._uses: defaultdict[str, list[int]] = defaultdict(list)
        for number in range(len(requests) - 1, -1, -1):
            for block in requests[number].blocks:
                self._uses[block].append(number)
        self._next: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._pushed = 0

    def admit(self, key: str, size: int, *, cold: bool = False, after: str | None = None) -> None:
        self._push(key)

    def touch(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self._next:
                self._push(key)

    def used(self, keys: Iterable[str]) -> None:
        """One of the uses that were to come is over."""
        for key in keys:
            self._uses[key].pop()

    def remove(self, key: str) -> None:
        self._next.pop(key, None)

    def victims(self, limit: int) -> list[str]:
        """At most one."""
        while self._heap and self._next.get(self._heap[0][2]) != -self._heap[0][0]:
            heappop(self._heap)
        return [self._heap[0][2]] if self._heap and limit else []

    def _push(self, key: str) -> None:
        coming = self._uses[key]
        self._next[key] = coming[-1] if coming else _NEVER
        self._pushed += 1
        heappush(self._heap, (-self._next[key], -self._pushed, key))


class Clock:
    """The time of the trace, for policies that look at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Cache:
    """A tier of blocks under a policy: sizes and order, no bytes."""

    def __init__(self, policy: EvictionPolicy, capacity: float) -> None:
        """`capacity` in tokens."""
        self._policy = policy
        self._capacity = capacity
        self._sizes: dict[str, int] = {}
        self._used = 0

    def request(self, request: Request, cached: Cached) -> None:
        """Read the leading run that is there, and keep the rest."""
        sizes, blocks = request.sizes(), request.blocks
        there = next((at for at, block in enumerate(blocks) if block not in self._sizes), len(blocks))
        cached.hits.append(sum(sizes[:there]))
        if isinstance(self._policy, Belady):
            self._policy.used(blocks)
        self._policy.touch(reversed(blocks[:there]))
        for at in range(there, len(blocks)):
            self._keep(blocks[at], sizes[at], blocks[at - 1] if at else None, cached)
        self._policy.reorder(reversed(blocks))

    def _keep(self, block: str, size: int, after: str | None, cached: Cached) -> None:
        if block in self._sizes or size > self._capacity:
            self._policy.touch([block])
            return
        while self._used + size > self._capacity:
            (victim,) = self._policy.victims(1)
            self._policy.remove(victim)
            gone = self._sizes.pop(victim)
            self._used -= gone
            cached.evicted += gone
        self._sizes[block] = size
        self._used += size
        cached.written += size
        self._policy.admit(block, size, after=after)


def play(requests: Sequence[Request], capacity: float, make: Callable[[Clock], EvictionPolicy]) -> Cached:
    """Run a trace through a cache of `capacity` tokens."""
    clock, cached = Clock(), Cached()
    cache = Cache(make(clock), capacity)
    for request in requests:
        clock.now = request.at
        cache.request(request, cached)
    return cached
