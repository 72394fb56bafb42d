"""A backend as far away and as narrow as wanted, for tests and what-if benchmarks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from sgkv.backends.base import Backend, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper


class Simulated(Wrapper):
    """Delays `contains`, `put`, `get` and `delete` as a link of some latency and bandwidth would.

    Calls share the bandwidth: bytes queue behind those of calls before them. A call whose deadline
    comes first waits until then and ends as TIMEOUT without having reached `inner`.
    """

    def __init__(
        self,
        inner: Backend,
        *,
        latency_s: float = 0.0,
        bandwidth_bytes_s: float = float("inf"),
        jitter_s: float = 0.0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """A call takes `latency_s` plus up to `jitter_s` (uniform, seeded) plus its bytes' share."""
        super().__init__(inner)
        self._latency = latency_s
        self._bandwidth = bandwidth_bytes_s
        self._jitter = jitter_s
        self._random = random.Random(seed)  # noqa: S311 - a simulation
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._link_free_at = 0.0

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        self._sleep(self._delay(0))
        return self.inner.probe(keys, deadline)

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        if not self._travel(sum(item.size for item in items), deadline):
            return [Status.TIMEOUT] * len(items)
        return self.inner.put(items, deadline)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        wanted = sum(len(part.buffer) for item in items for part in item.parts)
        if not self._travel(wanted, deadline):
            return [Status.TIMEOUT] * len(items)
        return self.inner.get(items, deadline)

    def delete(self, keys: Sequence[str]) -> list[bool]:
        self._sleep(self._delay(0))
        return self.inner.delete(keys)

    def _travel(self, size: int, deadline: Deadline | None) -> bool:
        delay = self._delay(size)
        left = None if deadline is None else deadline.remaining()
        if left is None or delay <= left:
            self._sleep(delay)
            return True
        self._sleep(left)
        return False

    def _delay(self, size: int) -> float:
        with self._lock:
            now = self._clock()
            self._link_free_at = max(now, self._link_free_at) + size / self._bandwidth
            return self._link_free_at - now + self._latency + self._random.uniform(0, self._jitter)
