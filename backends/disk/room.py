"""Making room: quota and free-space watermark, over all processes that share the folder."""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH108

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sgkv.backends import failpoints
from sgkv.backends.disk.discard import remove_empty_parents
from sgkv.backends.disk.index import DiskIndex, charge
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.scanner import Scanner

_LOW_SHARE = 20
"""Whoever leads an eviction leaves one part in twenty of the capacity free."""
_ATTEMPTS = 3
_SCAN_WAIT_SECONDS = 10.0
_FREE_SECONDS = 1.0
"""How long a reading of the file system's free space is good."""
_UNREAD = (0, float("-inf"))
_MIN_FREE = 2 << 30
_MIN_FREE_SHARE = 50


class Room:
    """Quota for one blob at a time, by evicting others where it takes that.

    One thread of one process leads an eviction: it holds `evict.lock`, looks at the folder again
    if it has not for a while, and evicts to 95 % of capacity. Nobody waits for it: the others
    evict no more than their own blob needs. What other processes write counts from the next scan
    on, so that all together may pass the capacity by what they write in half a minute.
    """

    def __init__(
        self,
        layout: Layout,
        index: DiskIndex,
        scanner: Scanner,
        min_free: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`min_free` in bytes; None is 2 GiB or 2 % of the file system, whichever is less."""
        self._layout = layout
        self._index = index
        self._scanner = scanner
        self._min_free = min_free
        self._clock = clock
        self._leader = threading.Lock()
        self._free = _UNREAD

    def claim(self, size: int) -> bool:
        """Set `size` bytes aside, evicting what may go; False where that is not enough.

        Raises OSError where the folder cannot be examined or victims cannot be deleted.
        """
        for _ in range(_ATTEMPTS):
            if not self._short_of_free(size) and self._index.claim(size):
                free, read_at = self._free
                self._free = (free - charge(size), read_at)
                return True
            if charge(size) > self._index.capacity or not self.evict(size):
                return False
        return False

    def evict(self, size: int, at_least: int = 0) -> bool:
        """Delete blobs for one of `size` bytes to fit, of `at_least` bytes in all.

        True when it is worth trying to write again. Raises OSError as `claim`.
        """
        if not self._scanner.complete:
            self._scanner.wait(_SCAN_WAIT_SECONDS)
        if not self._leader.acquire(blocking=False):
            return self._delete(max(at_least, self._missing(size)))
        try:
            with self._flock() as leads:
                if not leads:
                    return self._delete(max(at_least, self._missing(size)))
                self._scanner.refresh(_SCAN_WAIT_SECONDS)
                return self._delete(max(at_least, self._missing(size), self._above_mark()))
        finally:
            self._leader.release()

    def _missing(self, size: int) -> int:
        over = self._index.used + charge(size) - self._index.capacity
        return max(over, self._short_of_free(size))

    def _above_mark(self) -> int:
        return self._index.used - self._index.capacity * (_LOW_SHARE - 1) // _LOW_SHARE

    def _delete(self, wanted: int) -> bool:
        victims = self._index.take_victims(wanted)
        paths = [self._layout.path_of(victim.key) for victim in victims]
        failpoints.passing("evict.chosen")
        for at, path in enumerate(paths):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue  # another process was faster, and the room is there
            except OSError:
                for kept in victims[at:]:
                    self._index.add(*kept)
                raise
            failpoints.passing("evict.unlinked")
        remove_empty_parents(self._layout, paths)
        self._index.count_evicted(victims)
        self._free = _UNREAD
        failpoints.passing("evict.done")
        return bool(victims) or wanted <= 0

    def _short_of_free(self, size: int) -> int:
        """Bytes that must go before `size` more leave the file system above its watermark."""
        free, read_at = self._free
        if self._clock() - read_at > _FREE_SECONDS:
            info = os.statvfs(self._layout.root)
            if self._min_free is None:
                self._min_free = min(_MIN_FREE, info.f_blocks * info.f_frsize // _MIN_FREE_SHARE)
            free = info.f_bavail * info.f_frsize
            self._free = (free, self._clock())
        return max(0, (self._min_free or 0) + charge(size) - free)

    @contextmanager
    def _flock(self) -> Iterator[bool]:
        """Whether this process leads; never where the file system has no locks to give."""
        try:
            fd = os.open(self._layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            yield False
            return
        try:
            yield _locked(fd)
        finally:
            os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
