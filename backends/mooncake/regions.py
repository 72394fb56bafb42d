"""Which memory the transport knows: reads and writes of anything else are not portable, or fatal."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import address_of


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """One registered run of memory; holding `owner` keeps it mapped."""

    start: int
    stop: int
    owner: Buffer = field(compare=False)


class Regions:
    """Disjoint registered regions by address. Any thread.

    A region stays mapped for as long as it is here: an abandoned native call may still read it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._regions: list[Region] = []

    def add(self, view: Buffer) -> Region | None:
        """Enter a view's memory; None where it is empty or overlaps what is here."""
        start = address_of(view) if len(view) else 0
        region = Region(start, start + len(view), view)
        with self._lock:
            if not start or any(start < other.stop and other.start < region.stop for other in self._regions):
                return None
            insort(self._regions, region)
        return region

    def drop(self, region: Region) -> None:
        with self._lock:
            self._regions.remove(region)

    def locate(self, buffer: Buffer) -> int | None:
        """The address of a buffer that lies in one region; None where it does not, or is empty."""
        if not self._regions or not len(buffer):
            return None
        start = address_of(buffer)
        with self._lock:
            at = bisect_right(self._regions, start, key=lambda region: region.start) - 1
            inside = at >= 0 and start + len(buffer) <= self._regions[at].stop
        return start if inside else None

    def starting_at(self, start: int) -> Region | None:
        """The region that begins at an address."""
        with self._lock:
            at = bisect_left(self._regions, start, key=lambda region: region.start)
            found = self._regions[at] if at < len(self._regions) else None
        return found if found is not None and found.start == start else None

    def each(self, work: Callable[[Region], None]) -> None:
        """Call `work` for every region there is now."""
        with self._lock:
            regions = list(self._regions)
        for region in regions:
            work(region)

    @property
    def size(self) -> int:
        """Bytes registered."""
        with self._lock:
            return sum(region.stop - region.start for region in self._regions)
