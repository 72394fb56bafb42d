"""Places for chunks to land in: one is used again only when its writer said that it is done."""

from __future__ import annotations

import threading

from sgkv.pd.engine import Engine, Region

SCRATCH_BYTES = 8
"""Bytes after the places that anybody may write."""


class Slots:
    """`count` places of `size` bytes each in one region. Thread-safe."""

    def __init__(self, engine: Engine, size: int, count: int) -> None:
        self.size = size
        self.lost = 0
        """Places whose writer went away without a word: it may write yet, so nothing else goes there."""
        self._region = Region(engine, size * count + SCRATCH_BYTES)
        self._lock = threading.Lock()
        self._free = list(range(count))
        self._count = count

    def take(self) -> int | None:
        """A free place, if any."""
        with self._lock:
            return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        with self._lock:
            self._free.append(slot)

    def lose(self) -> None:
        """The place that a caller has will not be given back."""
        with self._lock:
            self.lost += 1

    @property
    def scratch(self) -> int:
        """The address of `SCRATCH_BYTES` that nobody reads."""
        return self.pointer(self._count)

    def pointer(self, slot: int) -> int:
        return self._region.pointer + slot * self.size

    def view(self, slot: int, size: int) -> memoryview:
        return self._region.view[slot * self.size : slot * self.size + size]

    def close(self) -> None:
        """Call once, when no thread uses it; places still taken stay mapped, as lost ones do."""
        self._region.release(quiet=len(self._free) == self._count)
