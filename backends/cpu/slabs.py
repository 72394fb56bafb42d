"""Where blobs lie in the arena: slabs of equal blocks, so that free space is never in the wrong shape.

The arena is cut into segments. A slab is a run of segments carved into blocks of one size; a
slab whose blocks are all free can be dissolved, and its segments serve another size. Pure
bookkeeping over offsets: no memory is touched, and the caller brings the lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

BLOCK_UNIT = 4096
"""Block sizes are multiples of it: page-aligned blobs, and few size classes."""
_MAX_SEGMENT = 64 << 20
_SEGMENTS = 4096
"""About as many segments as an arena is cut into, until they would pass `_MAX_SEGMENT`."""
_MAX_WASTE = 1 / 16
"""Share of a slab that may be left over beside its blocks, where a wider slab avoids it."""
_EXTRA_SEGMENTS = 16
IMPOSSIBLE = 1 << 62
"""The cost of a slab that cannot be emptied; an int, so that differences of sums stay exact."""


def block_size(size: int) -> int:
    """The block a blob of `size` bytes takes."""
    return -(-size // BLOCK_UNIT) * BLOCK_UNIT or BLOCK_UNIT


def segment_size(capacity: int) -> int:
    """A power of two that cuts `capacity` into about `_SEGMENTS` segments."""
    wanted = max(BLOCK_UNIT, min(_MAX_SEGMENT, capacity // _SEGMENTS))
    return 1 << (wanted.bit_length() - 1)


@dataclass(slots=True, eq=False)
class Slab:
    """Consecutive segments carved into `blocks` blocks of `block` bytes."""

    first: int
    segments: int
    block: int
    blocks: int
    free: list[int] = field(default_factory=list)
    """Offsets of free blocks."""


class SlabAllocator:
    """Blocks of an arena of `capacity` bytes, in O(1) but for carving a new slab."""

    def __init__(self, capacity: int) -> None:
        self._segment = segment_size(capacity)
        self._owner: list[Slab | None] = [None] * (capacity // self._segment)
        self._taken = bytearray(len(self._owner))
        self._open: dict[int, OrderedDict[int, Slab]] = {}
        """Slabs with a free block, by block size and first segment; empty ones first."""
        self._empty: dict[int, Slab] = {}
        self._shapes: dict[int, tuple[int, int]] = {}
        self._vacant = len(self._owner)
        self._cursor = 0
        self.capacity = len(self._owner) * self._segment
        self.used = 0

    def allocate(self, size: int) -> int | None:
        """The offset of a block for `size` bytes; None where only an eviction would make one."""
        block = block_size(size)
        opened = self._open.get(block)
        slab = next(reversed(opened.values())) if opened else self._carve(block)
        if slab is None:
            return None
        offset = slab.free.pop()
        if self._empty:
            self._empty.pop(slab.first, None)
        if not slab.free:
            self._close(slab)
        self.used += block
        return offset

    def free(self, offset: int) -> None:
        """Return a block that `allocate` gave."""
        slab = self._owner[offset // self._segment]
        if slab is None:
            raise ValueError(f"offset {offset} is in no slab")
        slab.free.append(offset)
        opened = self._open.setdefault(slab.block, OrderedDict())
        opened[slab.first] = slab
        if len(slab.free) == slab.blocks:
            self._empty[slab.first] = slab
            opened.move_to_end(slab.first, last=False)
        self.used -= slab.block

    def cheapest_run(self, size: int, cost: Callable[[range], int]) -> list[range]:
        """What to evict so that a slab for `size` bytes fits: the block offsets of some slabs.

        `cost` says what emptying a slab of these block offsets takes, `IMPOSSIBLE` where that cannot
        be. Empty where no run of segments is possible. O(segments).
        """
        run, _ = self._shape(block_size(size))
        sums = list(accumulate(self._segment_costs(cost), initial=0))
        starts = range(len(sums) - run)
        at = min(starts, key=lambda start: sums[start + run] - sums[start], default=0)
        if not starts or sums[at + run] - sums[at] >= IMPOSSIBLE // len(self._owner):
            return []
        owners = {slab.first: slab for slab in self._owner[at : at + run] if slab is not None}
        return [self._offsets(slab) for slab in owners.values()]

    def _segment_costs(self, cost: Callable[[range], int]) -> list[int]:
        costs = [0] * len(self._owner)
        slabs = {slab.first: slab for slab in self._owner if slab is not None}
        for first, slab in slabs.items():
            share = cost(self._offsets(slab)) // slab.segments
            costs[first : first + slab.segments] = [share] * slab.segments
        return costs

    def _offsets(self, slab: Slab) -> range:
        start = slab.first * self._segment
        return range(start, start + slab.blocks * slab.block, slab.block)

    def _close(self, slab: Slab) -> None:
        opened = self._open[slab.block]
        del opened[slab.first]
        if not opened:
            del self._open[slab.block]

    def _carve(self, block: int) -> Slab | None:
        segments, blocks = self._shape(block)
        first = self._free_run(segments)
        if first is None and self._empty:
            self._dissolve_empty()
            first = self._free_run(segments)
        if first is None:
            return None
        slab = Slab(first, segments, block, blocks)
        slab.free.extend(reversed(self._offsets(slab)))
        self._owner[first : first + segments] = [slab] * segments
        self._taken[first : first + segments] = b"\1" * segments
        self._vacant -= segments
        self._open[block] = OrderedDict({first: slab})
        return slab

    def _shape(self, block: int) -> tuple[int, int]:
        """How many segments a slab of this block size spans, and how many blocks it holds."""
        shape = self._shapes.get(block)
        if shape is None:
            least = -(-block // self._segment)
            widest = max(least, min(least + _EXTRA_SEGMENTS, len(self._owner)))
            segments = min(range(least, widest + 1), key=lambda wide: self._waste(wide, block))
            shape = self._shapes[block] = (segments, segments * self._segment // block)
        return shape

    def _waste(self, segments: int, block: int) -> float:
        slab = segments * self._segment
        return max(_MAX_WASTE, slab % block / slab)

    def _free_run(self, segments: int) -> int | None:
        if segments > self._vacant:
            return None
        wanted = bytes(segments)
        at = self._taken.find(wanted, self._cursor)
        at = self._taken.find(wanted) if at < 0 else at
        if at < 0:
            return None
        self._cursor = at + segments
        return at

    def _dissolve_empty(self) -> None:
        for slab in self._empty.values():
            self._close(slab)
            self._owner[slab.first : slab.first + slab.segments] = [None] * slab.segments
            self._taken[slab.first : slab.first + slab.segments] = bytes(slab.segments)
            self._vacant += slab.segments
        self._empty.clear()
