"""Batches in pieces over one connection: what is asked, what is copied, and when.

Two requests are ahead of the answers, so that the daemon has the next piece to work on, from a disk perhaps,
while this side copies one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import copy
from sgkv.chunk.blob import Page
from sgkv.node import wire
from sgkv.node.lane import Lane

_AHEAD = 2


@dataclass(slots=True)
class Batch:
    """One call's pieces on their way. Raises what `Lane` does."""

    lane: Lane
    pieces: Iterable[range]
    until: float
    _unheard: deque[Callable[[], None]] = field(init=False, default_factory=deque)
    """What hears each answer that is to come, in the order of the requests."""

    def run(
        self,
        request: Callable[[range], wire.Message],
        answered: Callable[[range], None],
        ahead: int = _AHEAD,
    ) -> None:
        """Send a request a piece, `ahead` before the first answer; `answered` hears each answer, in order."""
        left = iter(self.pieces)

        def ask() -> None:
            piece = next(left, None)
            if piece is not None:
                self.lane.post(request(piece), self.until)
                self._unheard.append(lambda: hear(piece))

        def hear(piece: range) -> None:
            answered(piece)
            ask()

        for _ in range(ahead):
            ask()
        while self._unheard:
            self._unheard.popleft()()

    def write(
        self,
        arena: Buffer,
        pages: Sequence[Page],
        reserve: Callable[[range], wire.Reserve],
        publish: Callable[[], wire.Publish],
        stored: Callable[[range, wire.Flags], None],
    ) -> None:
        """Copy pages into the daemon's arena; `stored` is told what became of each piece, in order."""

        def fill(piece: range) -> None:
            rooms = self.lane.hear(wire.Rooms, self.until)
            _copy(arena, rooms.places, pages[piece.start : piece.stop], into_arena=True)
            self.lane.post(publish(), self.until)
            self._unheard.append(lambda: stored(piece, self.lane.hear(wire.Flags, self.until)))

        self.run(reserve, fill)

    def read(
        self,
        arena: Buffer,
        pages: Sequence[Page],
        borrow: Callable[[range], wire.Borrow],
        lent: Callable[[range, wire.Lent], None],
    ) -> None:
        """Copy pages out of the daemon's arena; `lent` is told what became of each piece, in order."""

        def take(piece: range) -> None:
            answer = self.lane.hear(wire.Lent, self.until)
            _copy(arena, answer.places, pages[piece.start : piece.stop], into_arena=False)
            self.lane.tell(wire.Return(), self.until)
            lent(piece, answer)

        self.run(borrow, take)


def _copy(arena: Buffer, packed: bytes, pages: Sequence[Page], *, into_arena: bool) -> None:
    for place, page in zip(wire.unpacked_places(packed), pages, strict=True):
        if place >= 0:
            _move(arena, place, page, into_arena=into_arena)


def _move(arena: Buffer, place: int, page: Page, *, into_arena: bool) -> None:
    """Copy one page between its buffers and its block; ValueError for a block that is not all there."""
    for buffer in page:
        block = arena[place : place + len(buffer)]
        if into_arena:
            copy(block, buffer)
        else:
            copy(buffer, block)
        place += len(buffer)
