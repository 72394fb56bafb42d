"""How long a tier takes for a number of bytes, by what its reads took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from sgkv.backends.base import Backend, GetItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper

_MEMORY = 0.95
"""What a read counts, once the next one has been seen."""
_ENOUGH = 3
"""Reads until an estimate is one."""
_STEP = 0.02
"""By how much of itself a read moves a quantile."""
_SPREAD = 1e-3
"""Relative variance of sizes from which latency and bandwidth can be told apart."""


class TierSpeed:
    """Latency and bandwidth, as the line through recent reads, and how far reads stray from it.

    Any thread; a call takes a few microseconds.
    """

    def __init__(self, quantile: float = 0.5) -> None:
        """`quantile` of the reads is what `seconds` tells: 0.5 the typical one, 0.95 a late one."""
        if not 0 < quantile < 1:
            raise ValueError(f"a quantile lies between 0 and 1, got {quantile}")
        self._quantile = quantile
        self._lock = threading.Lock()
        self._reads = 0
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._stray = 1.0
        """The quantile of what reads took over what the line says."""
        self._waiting = 0

    @property
    def known(self) -> bool:
        """Whether there were enough reads."""
        return self._reads >= _ENOUGH

    def began(self, size: int) -> None:
        """A read of `size` bytes is under way, and those after it wait for it."""
        with self._lock:
            self._waiting += size

    def ended(self, size: int, seconds: float, *, whole: bool) -> None:
        """A read has ended; one that did not fill its buffers tells no speed."""
        with self._lock:
            self._waiting -= size
            if not whole or not size:
                return
            if self.known:
                over = seconds / max(1e-9, self._line(size))
                self._stray *= 1 + _STEP * (self._quantile - (over <= self._stray))
            self._reads += 1
            self._weight = _MEMORY * self._weight + 1
            self._x = _MEMORY * self._x + size
            self._y = _MEMORY * self._y + seconds
            self._xx = _MEMORY * self._xx + size * size
            self._xy = _MEMORY * self._xy + size * seconds

    def seconds(self, size: int) -> float:
        """Of a read of `size` bytes that begins now, behind those under way."""
        with self._lock:
            return self._stray * (self._line(size + self._waiting) if self._reads else 0.0)

    def _line(self, size: int) -> float:
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - mean_x * mean_x
        if spread > _SPREAD * mean_x * mean_x:
            slope = (self._xy / self._weight - mean_x * mean_y) / spread
            if 0 <= slope <= mean_y / mean_x:  # else it would take less than no time somewhere
                return mean_y + slope * (size - mean_x)
        return mean_y * size / mean_x


class Timed(Wrapper):
    """Tells a `TierSpeed` of each read."""

    def __init__(
        self, inner: Backend, speed: TierSpeed, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(inner)
        self._speed = speed
        self._clock = clock

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        size = sum(len(part.buffer) for item in items for part in item.parts)
        began, statuses = self._clock(), list[Status]()
        self._speed.began(size)
        try:
            statuses = self.inner.get(items, deadline)
        finally:
            whole = bool(statuses) and all(status is Status.OK for status in statuses)
            self._speed.ended(size, self._clock() - began, whole=whole)
        return statuses
