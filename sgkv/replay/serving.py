"""When each prompt's first token comes, given what of it is there: engines, a link, the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from random import Random

from sgkv.decide import Gate, Mode, TierSpeed
from sgkv.decide.gate import Reach
from sgkv.replay.figures import Media, Model
from sgkv.replay.trace import Request

_BUSY = 0.6
"""Share of their time that the engines would compute without a store."""
_TIER = "tier"


@dataclass(slots=True)
class Served:
    """One run of a trace."""

    ttft: list[float] = field(default_factory=list)
    """Seconds from a request's arrival to its first token."""
    loaded: int = 0
    """Tokens."""
    loads: int = 0
    declined: int = 0
    """Requests of which less was loaded than was there."""

    def add(self, ttft: float, loaded: int, hit: int) -> None:
        self.ttft.append(ttft)
        self.loaded += loaded
        self.loads += loaded > 0
        self.declined += loaded < hit


@dataclass(frozen=True, slots=True)
class Site:
    """Engines before one link."""

    model: Model
    media: Media
    bytes_s: float
    """Of the link between the tier and all engines."""
    engines: int

    def serve(self, requests: Sequence[Request], hits: Sequence[int], *, gated: bool) -> Served:
        """`hits` are the leading tokens of each request that could be loaded.

        Requests go to the engine that is free first, which computes one prompt after the other, whole, and
        waits for what it loads. Loads take turns on the link. How late they are within `media.jitter` is
        chance, the same in every run.
        """
        served, link = Served(), _Link(self)
        free = [0.0] * self.engines
        for request, hit in zip(requests, hits, strict=True):
            begins = max(request.at, heappop(free))
            wanted = link.worthwhile(begins, hit) if gated else hit
            ready = link.load(begins, wanted) if wanted else begins
            first = ready + self.model.prefill.seconds(request.tokens - wanted, wanted)
            heappush(free, first)
            served.add(first - request.at, wanted, hit)
        return served


class _Link:
    """Loads one after the other, and the gate that watches them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._free_at = 0.0
        self._random = Random(0)  # noqa: S311 - a simulation
        self._speed = TierSpeed()
        self._under_way: list[tuple[float, int, float]] = []
        """When loads end, their bytes, how long they took."""
        self._gate = Gate(
            Mode.ON,
            site.model.prefill,
            {_TIER: self._speed},
            scatter_bytes_s=site.media.scatter,
            control_s=site.media.control,
        )

    def worthwhile(self, now: float, hit: int) -> int:
        """Tokens of a hit that the gate would load."""
        while self._under_way and self._under_way[0][0] <= now:
            _, size, seconds = heappop(self._under_way)
            self._speed.ended(size, seconds, whole=True)
        return self._gate.decide([Reach(_TIER, hit)], self._site.model.kv_bytes, 1).pages if hit else 0

    def load(self, now: float, tokens: int) -> float:
        """When so many tokens are on the device. What the gate is told leaves out the wait for others,
        which it knows by their bytes.
        """
        media, size = self._site.media, tokens * self._site.model.kv_bytes
        moving = size / self._site.bytes_s * (1 + self._random.uniform(0, media.jitter))
        begins = max(now, self._free_at)
        self._free_at = begins + moving
        ends = begins + media.latency + moving
        self._speed.began(size)
        heappush(self._under_way, (ends, size, media.latency + moving))
        return ends + size / media.scatter + media.control


def enough_engines(requests: Sequence[Request], model: Model) -> int:
    """How many engines compute the whole trace without a store and are not always busy."""
    seconds = sum(model.prefill.seconds(request.tokens) for request in requests)
    span = max(1.0, requests[-1].at - requests[0].at)
    return max(1, ceil(seconds / span / _BUSY))
