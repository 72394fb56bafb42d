"""Bringing the index in line with the folder, at start and now and then afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sgkv.backends.disk.index import DiskIndex
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.walk import walk

_STALE_SECONDS = 30.0


class Scanner:
    """Loads the folder into an index. One scan at a time; the caller sees to that."""

    def __init__(self, layout: Layout, index: DiskIndex, clock: Callable[[], float] = time.monotonic) -> None:
        self._layout = layout
        self._index = index
        self._clock = clock
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._last = float("-inf")

    @property
    def complete(self) -> bool:
        """The first scan is done: the index knows what an earlier process left."""
        return self._ready.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait for the first scan; False after `timeout` seconds or when stopped before it was done."""
        return self._ready.wait(timeout) and not self._stop.is_set()

    def first(self) -> None:
        """Clean up after writers that died, and load the folder. Runs in a thread of its own."""
        self._layout.remove_dead_temps()
        self._scan()
        self._ready.set()

    def refresh(self) -> None:
        """Scan again unless that was done within the last half minute."""
        if self._clock() - self._last > _STALE_SECONDS:
            self._index.count("rescans")
            self._scan()

    def stop(self) -> None:
        """End a scan under way, and let go who waits for it."""
        self._stop.set()
        self._ready.set()

    def _scan(self) -> None:
        before, found = set(self._index.sizes), []
        for blob in walk(self._layout, stopped=self._stop.is_set):
            found.append(blob)
            if blob.key not in self._index.sizes:
                self._index.scanning(blob.size)
        if not self._stop.is_set():
            self._index.load(sorted(found, key=lambda blob: blob.used), before)
            self._last = self._clock()
