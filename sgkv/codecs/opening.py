"""Finding, in a coded blob, what the parts of a read want, and putting it where they want it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sgkv.backends.base import Buffer, GetItem, Part, Status
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import checked
from sgkv.codecs.coding import Reader
from sgkv.codecs.errors import DamagedError


@dataclass(slots=True)
class Opening:
    """One read of a coded blob. Its parts are runs of the chunk blob that was coded."""

    item: GetItem
    reader: Reader
    _places: list[int] = field(init=False)
    _stored: list[Buffer] = field(init=False, default_factory=list)
    """Memory of our own, from `request` to `finish`: many reads of a batch wait for those before them."""

    def __post_init__(self) -> None:
        self._places = sorted({place for part in self.item.parts for place, *_ in self._cuts(part)})

    @property
    def size(self) -> int:
        """Stored bytes to read."""
        return sum(self._sizes())

    def request(self) -> GetItem:
        """What to read of the stored blob, into memory of our own."""
        offsets = self.reader.head.offsets
        self._stored = [memoryview(bytearray(size)) for size in self._sizes()]
        parts = [
            Part(offsets[place], stored) for place, stored in zip(self._places, self._stored, strict=True)
        ]
        return GetItem(self.item.key, parts)

    def finish(self, deadline: Deadline | None) -> Status:
        """Open what was read, and fill the item's parts with it: OK, CORRUPT or TIMEOUT. Once."""
        read, self._stored = self._stored, []
        try:
            plain = {
                place: memoryview(self.reader.section(place, stored))
                for place, stored in zip(self._places, read, strict=True)
            }
        except DamagedError:
            return Status.CORRUPT
        with landing(deadline) as admitted:
            if not admitted:
                return Status.TIMEOUT
            for part in self.item.parts:
                self._fill(part, plain)
            return Status.OK if checked(self.item) else Status.CORRUPT

    def _sizes(self) -> list[int]:
        sizes = self.reader.head.envelope.section_sizes
        return [sizes[place] for place in self._places]

    def fits(self) -> bool:
        """Whether all that the parts want is in the blob."""
        return all(sum(stop - start for _, start, stop in self._cuts(part)) == len(part.buffer)
                   for part in self.item.parts)  # fmt: skip

    def _fill(self, part: Part, plain: dict[int, memoryview]) -> None:
        at = 0
        for place, start, stop in self._cuts(part):
            copy(part.buffer[at : at + stop - start], plain[place][start:stop])
            at += stop - start

    def _cuts(self, part: Part) -> Iterator[tuple[int, int, int]]:
        """(section, start, stop) of the bytes that a part wants, as far as the blob has them."""
        envelope = self.reader.head.envelope
        header, page = envelope.header_bytes, envelope.page_bytes
        at, end = part.offset, part.offset + len(part.buffer)
        last = len(envelope.sizes) // 4 - 1
        while at < end:
            place = 0 if at < header else 1 + (at - header) // page
            if place > last:
                return
            begin = 0 if not place else header + (place - 1) * page
            stop = min(end, begin + (page if place else header))
            yield place, at - begin, stop - begin
            at = stop
