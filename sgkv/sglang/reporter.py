"""What SGLang and Prometheus are told: transfer rates as SGLang wants them, and our gauges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sglang.srt.observability.metrics_collector import StorageMetrics

if TYPE_CHECKING:
    from sgkv.backends.base import Bound
    from sgkv.metrics import Metrics
    from sgkv.store.base import PageStore

_MAX_SAMPLES = 1024
_GAUGE_SECONDS = 5.0


@dataclass(slots=True)
class Done:
    """Filled in by the timed block."""

    pages: int = 0


class Reporter:
    """Collects one sample a transfer until SGLang drains them. Any thread; bounded."""

    def __init__(self, metrics: Metrics) -> None:
        self._gauges = metrics
        self._gauges_due = 0.0
        self._lock = threading.Lock()
        self._metrics = StorageMetrics()
        self._samples = 0

    @staticmethod
    @contextmanager
    def timed(
        into: Reporter | None, direction: Literal["prefetch", "backup"], page_bytes: int
    ) -> Iterator[Done]:
        """Time a transfer; the block sets how many pages it moved. `into` None measures nothing."""
        done = Done()
        started = time.perf_counter()
        yield done
        if into is not None and done.pages:
            into.add(direction, done.pages, done.pages * page_bytes / (time.perf_counter() - started) / 1e9)

    def add(self, direction: Literal["prefetch", "backup"], pages: int, gb_per_second: float) -> None:
        with self._lock:
            if self._samples < _MAX_SAMPLES:
                self._samples += 1
                getattr(self._metrics, f"{direction}_pgs").append(pages)
                getattr(self._metrics, f"{direction}_bandwidth").append(gb_per_second)

    def refresh_gauges(
        self, store: PageStore, bounds: Callable[[], Mapping[str, Bound]] | None = None
    ) -> None:
        """Set the gauges to the store's state, every few seconds; costs a clock read otherwise.

        `bounds` is asked for what the adapter itself holds.
        """
        now = time.monotonic()
        if now >= self._gauges_due:
            self._gauges_due = now + _GAUGE_SECONDS
            stats = store.stats()
            self._gauges.update(replace(stats, bounds={**stats.bounds, **bounds()}) if bounds else stats)

    def drain(self) -> StorageMetrics | None:
        """What came in since the last call; None without anything, which is what an idle loop gets."""
        if not self._samples:
            return None
        with self._lock:
            metrics, self._metrics = self._metrics, StorageMetrics()
            self._samples = 0
        return metrics
