"""Pages that only the engine has: copied by it, to and from the daemon's arena.

Two requests are ahead of the answers, so that the daemon prepares the next piece, from a disk perhaps, while
this side copies one.
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
    """Pages on their way, in pieces, over one lane. Raises what `Lane` does."""

    lane: Lane
    arena: Buffer
    pages: Sequence[Page]
    until: float
    _unheard: deque[Callable[[], None]] = field(init=False, default_factory=deque)
    """What hears each answer that is to come, in the order of the requests."""

    def write(
        self,
        pieces: Iterable[range],
        reserve: Callable[[range], wire.Reserve],
        publish: Callable[[], wire.Publish],
        stored: Callable[[range, wire.Flags], None],
    ) -> None:
        """Store every piece; `stored` is told what became of each, in order."""
        left = iter(pieces)

        def ask() -> None:
            piece = next(left, None)
            if piece is not None:
                self.lane.post(reserve(piece), self.until)
                self._unheard.append(lambda: fill(piece))

        def fill(piece: range) -> None:
            rooms = self.lane.hear(wire.Rooms, self.until)
            self._copy(piece, rooms.places, into_arena=True)
            self.lane.post(publish(), self.until)
            self._unheard.append(lambda: stored(piece, self.lane.hear(wire.Flags, self.until)))
            ask()

        self._run(ask)

    def read(
        self,
        pieces: Iterable[range],
        borrow: Callable[[range], wire.Borrow],
        lent: Callable[[range, wire.Lent], None],
    ) -> None:
        """Read every piece; `lent` is told what became of each, in order, once it is copied."""
        left = iter(pieces)

        def ask() -> None:
            piece = next(left, None)
            if piece is not None:
                self.lane.post(borrow(piece), self.until)
                self._unheard.append(lambda: take(piece))

        def take(piece: range) -> None:
            answer = self.lane.hear(wire.Lent, self.until)
            self._copy(piece, answer.places, into_arena=False)
            self.lane.tell(wire.Return(), self.until)
            lent(piece, answer)
            ask()

        self._run(ask)

    def _run(self, ask: Callable[[], None]) -> None:
        for _ in range(_AHEAD):
            ask()
        while self._unheard:
            self._unheard.popleft()()

    def _copy(self, piece: range, packed: bytes, *, into_arena: bool) -> None:
        places = wire.unpacked_places(packed)
        for place, page in zip(places, self.pages[piece.start : piece.stop], strict=True):
            if place >= 0:
                _move(self.arena, place, page, into_arena=into_arena)


def _move(arena: Buffer, place: int, page: Page, *, into_arena: bool) -> None:
    """Copy one page between its buffers and its block; ValueError for a block that is not all there."""
    for buffer in page:
        block = arena[place : place + len(buffer)]
        if into_arena:
            copy(block, buffer)
        else:
            copy(buffer, block)
        place += len(buffer)
