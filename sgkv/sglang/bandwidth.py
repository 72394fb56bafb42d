"""Transfer rates in the form SGLang's metrics want them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from sglang.srt.observability.metrics_collector import StorageMetrics

_MAX_SAMPLES = 1024


@dataclass(slots=True)
class Done:
    """Filled in by the timed block."""

    pages: int = 0


class Bandwidth:
    """Collects one sample a transfer until SGLang drains them. Any thread; bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics = StorageMetrics()
        self._samples = 0

    @staticmethod
    @contextmanager
    def timed(
        into: Bandwidth | None, direction: Literal["prefetch", "backup"], page_bytes: int
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

    def drain(self) -> StorageMetrics | None:
        """What came in since the last call; None without anything, which is what an idle loop gets."""
        if not self._samples:
            return None
        with self._lock:
            metrics, self._metrics = self._metrics, StorageMetrics()
            self._samples = 0
        return metrics
