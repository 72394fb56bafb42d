"""Host memory for pages that come and go, of a fixed size."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sgkv.backends.base import Bound, Buffer
from sgkv.backends.cpu.arena import Arena
from sgkv.backends.cpu.slabs import BLOCK_UNIT, SlabAllocator


class PageMemory:
    """Blocks of one arena, one a page, as the cpu tier has them. Any thread.

    What is given back is handed out again first: it is resident, and to touch new memory takes ten times
    as long as to copy a page into it. Memory that was touched once stays with the process.
    """

    def __init__(self, size: int) -> None:
        """`size` bytes; below one block of 4 KiB there is no room at all."""
        self._lock = threading.Lock()
        usable = size if size >= BLOCK_UNIT else 0
        self._blocks = SlabAllocator(usable) if usable else None
        self._arena = Arena(self._blocks.capacity, prefault=False) if self._blocks else None

    def take(self, pages: int, size: int) -> list[int]:
        """Offsets of blocks for so many pages of `size` bytes, or for as many of them as there is room."""
        taken: list[int] = []
        with self._lock:
            while self._blocks and len(taken) < pages:
                offset = self._blocks.allocate(size)
                if offset is None:
                    break
                taken.append(offset)
        return taken

    def give_back(self, offsets: Iterable[int]) -> None:
        with self._lock:
            for offset in offsets:
                assert self._blocks is not None  # it gave them
                self._blocks.free(offset)

    def view(self, offset: int, size: int) -> Buffer:
        """A page's block; not to be used once it was given back."""
        assert self._arena is not None
        return self._arena.view[offset : offset + size]

    @property
    def used(self) -> Bound:
        """Bytes of blocks that are taken, of those there are."""
        with self._lock:
            return Bound(self._blocks.used, self._blocks.capacity) if self._blocks else Bound(0, 0)
