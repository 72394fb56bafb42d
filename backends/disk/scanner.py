"""Bringing the index in line with the folder, at start and now and then afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sgkv.backends.disk.index import DiskIndex
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.walk import walk
from sgkv.backends.workers import WorkerPool, in_background

_STALE_SECONDS = 30.0
_STALE_SHARE = 50
"""A scan is good for this many times as long as it took: no more than 2 % of one core goes into it."""


class Scanner:
    """Loads the folder into an index, one scan at a time."""

    def __init__(
        self, layout: Layout, index: DiskIndex, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins with the first scan, in the background. `clock` gives monotonic seconds."""
        self._layout = layout
        self._index = index
        self._clock = clock
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._running = threading.Lock()
        self._good_until = float("-inf")
        self._pool = WorkerPool(1, f"sgkv-{name}-scan", backlog=1)
        in_background(self._pool, self._first)

    @property
    def complete(self) -> bool:
        """The first scan is done: the index knows what an earlier process left."""
        return self._ready.is_set()

    @property
    def stale(self) -> bool:
        """Other processes have had time to change much since the last scan."""
        return self.complete and self._clock() >= self._good_until

    def wait(self, timeout: float) -> bool:
        """Wait for the first scan; False after `timeout` seconds or when stopped before it was done."""
        return self._ready.wait(timeout) and not self._stop.is_set()

    def refresh(self) -> None:
        """Scan again if the last scan is stale and no other thread is at it."""
        if self.stale:
            self._index.count("rescans")
            self.scan()

    def refresh_soon(self) -> None:
        """`refresh` in the background."""
        if self.stale:
            in_background(self._pool, self.refresh)

    def scan(self) -> None:
        """Scan now; returns at once where another thread is at it."""
        if not self._running.acquire(blocking=False):
            return
        try:
            began = self._clock()
            self._load()
            took = self._clock() - began
            self._good_until = self._clock() + max(_STALE_SECONDS, _STALE_SHARE * took)
        finally:
            self._running.release()

    def stop(self) -> None:
        """End a scan under way, and let go who waits for it."""
        self._stop.set()
        self._ready.set()

    def close(self, timeout: float) -> None:
        self.stop()
        self._pool.close(timeout)

    def _first(self) -> None:
        """Clean up after writers that died, and load the folder."""
        try:
            self._layout.remove_dead_temps()
            self.scan()
        finally:
            self._ready.set()

    def _load(self) -> None:
        before, found = set(self._index.sizes), []
        for blob in walk(self._layout, stopped=self._stop.is_set):
            found.append(blob)
            if blob.key not in self._index.sizes:
                self._index.scanning(blob.size)
        if not self._stop.is_set():
            self._index.load(sorted(found, key=lambda blob: blob.used), before)
