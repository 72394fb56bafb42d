"""Places for chunks to land in: each session has its own, so a late write meets no other's chunk."""

from __future__ import annotations

import threading

from sgkv.backends.base import Buffer
from sgkv.pd.engine import Engine, Region

SCRATCH_BYTES = 8
"""Bytes after the places that anybody may write."""
_MOST_RETIRED = 4096
"""Address ranges that are kept for nothing; a process may have about 65,000 (`vm.max_map_count`)."""


class Places:
    """`count` places of `size` bytes each in one region."""

    def __init__(self, engine: Engine, size: int, count: int) -> None:
        """Raises RuntimeError of the engine."""
        self.size = size
        self._region = Region(engine, size * count + SCRATCH_BYTES)
        self.pointers = [self._region.pointer + at * size for at in range(count)]
        self.scratch = self._region.pointer + count * size
        """The address of `SCRATCH_BYTES` that nobody reads."""

    def view(self, place: int, size: int) -> Buffer:
        return self._region.view[place * self.size : place * self.size + size]

    def release(self, *, quiet: bool) -> None:
        self._region.release(quiet=quiet)


class Lender:
    """Lends places to sessions, and again to the next ones if nobody can write there late. Thread-safe.

    Places whose sender went away without a word are retired: the engine no longer knows them, their memory
    is given back, and only their addresses stay taken, for a write that had begun may end at any time.
    """

    def __init__(self, engine: Engine, size: int, count: int) -> None:
        """`count` places of `size` bytes a session."""
        self.size = size
        self.retired = 0
        """Sessions whose places were retired."""
        self._engine = engine
        self._count = count
        self._lock = threading.Lock()
        self._free: list[Places] = []

    def lend(self) -> Places:
        """Raises RuntimeError of the engine, or where too many were retired."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if self.retired >= _MOST_RETIRED:
                raise RuntimeError(f"{self.retired} senders went away in the middle: start another process")
        return Places(self._engine, self.size, self._count)

    def take_back(self, places: Places, *, quiet: bool) -> None:
        """Unless all is `quiet`, the sender may write yet."""
        if not quiet:
            places.release(quiet=False)
        with self._lock:
            if quiet:
                self._free.append(places)
            else:
                self.retired += 1

    def close(self) -> None:
        """Call once, when nothing is lent any more."""
        with self._lock:
            free, self._free = self._free, []
        for places in free:
            places.release(quiet=True)
