"""Bringing the index in line with the folder, at start and now and then afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress

from sgkv.backends import failpoints
from sgkv.backends.disk.discard import trim_quarantine
from sgkv.backends.disk.index import DiskIndex, Unloaded
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.walk import walk
from sgkv.backends.workers import WorkerPool, in_background

_STALE_SECONDS = 30.0
_STALE_SHARE = 50
"""A scan is good for this many times as long as it took: no more than 2 % of one core goes into it."""


class Scanner:
    """Loads the folder into an index, in a thread of its own; so there is one scan at a time."""

    def __init__(
        self, layout: Layout, index: DiskIndex, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins with the first scan. `clock` gives monotonic seconds."""
        self._layout = layout
        self._index = index
        self._clock = clock
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._wanted = threading.Event()
        self._good_until = float("-inf")
        self.pool = WorkerPool(1, f"sgkv-{name}-scan", backlog=1)
        self._latest = in_background(self.pool, self._first)

    @property
    def complete(self) -> bool:
        """The first scan is done: the index knows what an earlier process left."""
        return self._ready.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait for the first scan; False after `timeout` seconds or when stopped before it was done."""
        return self._ready.wait(timeout) and not self._stop.is_set()

    def refresh_soon(self) -> None:
        """Scan again in the background if other processes have had time to change much."""
        if self._stale():
            self._request()

    def refresh(self, timeout: float) -> None:
        """As `refresh_soon`, and wait for it up to `timeout` seconds."""
        if self._stale() and (scan := self._request()) is not None:
            wait([scan], timeout)

    def scan(self, timeout: float) -> bool:
        """Scan now; False where that is not done within `timeout` seconds."""
        self._wanted.set()
        scan = self._request()
        return scan is not None and bool(wait([scan], timeout).done)

    def stop(self) -> None:
        """End a scan under way, and let go who waits for it."""
        self._stop.set()
        self._ready.set()

    def close(self, timeout: float) -> None:
        self.stop()
        self.pool.close(timeout)

    def _stale(self) -> bool:
        return self.complete and self._clock() >= self._good_until

    def _request(self) -> Future[None] | None:
        """A scan that is still to begin; where one waits already, that."""
        self._latest = in_background(self.pool, self._scan_again) or self._latest
        return self._latest

    def _first(self) -> None:
        try:
            self._scan()
        finally:
            self._ready.set()

    def _scan_again(self) -> None:
        if self._wanted.is_set() or self._stale():
            self._wanted.clear()
            self._index.count("rescans")
            self._scan()

    def _scan(self) -> None:
        """Clean up after processes that died, and load the folder."""
        began = self._clock()
        self._layout.remove_dead_temps()
        with suppress(OSError):  # no folder, no quarantine
            trim_quarantine(self._layout)
        gone, new = set(self._index.sizes), list[Unloaded]()
        failpoints.passing("scan.begun")
        for blob in walk(self._layout, stopped=self._stop.is_set):
            failpoints.passing("scan.found")
            if blob.key in gone:
                gone.discard(blob.key)
            elif blob.key not in self._index.sizes:
                new.append((blob.used, blob.key, blob.size))
                self._index.scanning(blob.size)
        failpoints.passing("scan.walked")
        if not self._stop.is_set():
            self._index.load(new, gone)
            failpoints.passing("scan.loaded")
            took = self._clock() - began
            self._good_until = self._clock() + max(_STALE_SECONDS, _STALE_SHARE * took)
