"""A session whose store is in the node's daemon. Stands where `sgkv.store.session.Session` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from sgkv.backends.base import Buffer
from sgkv.backends.cpu import Lease
from sgkv.backends.cpu.copying import address_of, copy
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.counters import Counters
from sgkv.identity import Namespace
from sgkv.node import wire
from sgkv.node.lane import Lane, SharedRegion
from sgkv.node.link import Link, answer_by
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession
from sgkv.store.lookup import Found
from sgkv.store.span import Span

_PIECE = 32 << 20
"""Bytes of one message's pages: enough that what is said costs nothing beside what is moved."""
_CLEAR_SECONDS = 10.0
_PIN_SECONDS = 5.0

T = TypeVar("T")


class AttachedSession(PageSession):
    """Pages in shared memory are moved by the daemon; others are copied here, to and from its arena.

    Large batches go in pieces, so that engines take turns.
    """

    def __init__(
        self,
        link: Link,
        regions: Mapping[int, SharedRegion],
        counters: Counters,
        chunk_tokens: int,
        fence: float,
        *,
        namespace: Namespace,
        layout: PageLayout,
        producer: str,
    ) -> None:
        """`regions` is what the store shares now, by the identity of the object behind each buffer."""
        self.namespace = namespace
        self.layout = layout
        self.producer = producer
        opaque = layout.order is Order.OPAQUE  # as in an embedded session
        self.pages_per_chunk = 1 if opaque else max(1, chunk_tokens // layout.tokens)
        self._link = link
        self._regions = regions
        self._counters = counters
        self._fence = fence
        self._uncleared = False

    def lookup(self, span: Span, deadline: Deadline) -> Found:
        def ask(lane: Lane, until: float) -> wire.Found:
            return lane.ask(wire.Lookup(*self._asked(lane, span, until)), wire.Found, until)

        answer = self._call(ask, deadline)
        if isinstance(answer, MissReason):
            return Found(0, answer)
        return Found(answer.pages, MissReason(answer.reason) if answer.reason else None)

    def contains(self, span: Span, deadline: Deadline) -> list[bool]:
        def ask(lane: Lane, until: float) -> list[bool]:
            return _flags(lane.ask(wire.Contains(*self._asked(lane, span, until)), wire.Flags, until), span)

        answer = self._call(ask, deadline)
        return [False] * len(span.hashes) if isinstance(answer, MissReason) else answer

    def get(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[MissReason | None]:
        shared = self._are_shared(pages)
        reasons: list[MissReason | None] = []
        for piece in self._pieces(span):
            part, own = span.part(piece.start, piece.stop), pages[piece.start : piece.stop]
            answer = self._fill(part, own, deadline) if shared else None
            if answer is None:
                answer = self._borrow(part, own, deadline)
            if isinstance(answer, MissReason):
                reasons += [answer] * (len(pages) - len(reasons))
                break
            reasons += answer
        self._counters.misses(reasons)
        return reasons

    def set(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool]:
        store = self._keep if self._are_shared(pages) else self._write
        done: list[bool] = []
        for piece in self._pieces(span):
            part = span.part(piece.start, piece.stop)
            answer = store(part, pages[piece.start : piece.stop], deadline)
            if isinstance(answer, MissReason):
                break
            done += answer
        return done + [False] * (len(pages) - len(done))

    def lease(self, span: Span) -> list[Lease | None]:
        """None of them: a lease that outlived its call would have to be given back by the daemon's grace."""
        return [None] * len(span.hashes)

    def pin(self, span: Span, pinned: bool = True) -> list[bool]:
        def ask(lane: Lane, until: float) -> list[bool]:
            return _flags(
                lane.ask(wire.Pin(*self._asked(lane, span, until), pinned), wire.Flags, until), span
            )

        answer = self._call(ask, Deadline(_PIN_SECONDS))
        return [False] * len(span.hashes) if isinstance(answer, MissReason) else answer

    def clear(self) -> None:
        """Where the daemon cannot be told, nothing is read until it could be: every call tries first."""
        self._uncleared = True
        self._call(lambda _lane, _until: None, Deadline(_CLEAR_SECONDS))

    def _call(self, work: Callable[[Lane, float], T], deadline: Deadline) -> T | MissReason:
        """`work` on a connection, after what was to be cleared is."""

        def cleared(lane: Lane, until: float) -> T:
            if self._uncleared:
                lane.ask(wire.Clear(lane.number(self, until)), wire.Done, until)
                self._uncleared = False
            return work(lane, until)

        return self._link.call(cleared, deadline)

    def _asked(self, lane: Lane, span: Span, until: float) -> tuple[int, float, bytes, bytes | None]:
        """The fields that every message about pages begins with."""
        return lane.number(self, until), answer_by(until), *wire.packed_span(span)

    def _pieces(self, span: Span) -> Iterator[range]:
        """The pages of a span in batches of about `_PIECE` bytes that end where chunks do."""
        return span.batches(max(1, _PIECE // self.layout.page_bytes), self.pages_per_chunk)

    # The daemon moves the bytes.

    def _fill(
        self, span: Span, pages: Sequence[Page], deadline: Deadline
    ) -> list[MissReason | None] | MissReason | None:
        """None where the daemon must not be lent pages to write into."""

        def ask(lane: Lane, until: float) -> list[MissReason | None] | None:
            if not lane.fenced:
                return None
            lane.share(self._regions, until)
            request = wire.Fill(*self._asked(lane, span, until), _packed(pages))
            return self._outcome(self._lent(lane, request, until), span)

        return self._call(ask, deadline)

    def _lent(self, lane: Lane, request: wire.Fill, until: float) -> wire.Outcome:
        """Wait until the daemon has let go of our pages, whatever it takes."""
        try:
            return lane.ask(request, wire.Outcome, until + self._fence)
        except TimeoutError:
            self._counters.add("node_fenced")
            lane.fence()
            raise

    def _keep(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool] | MissReason:
        def ask(lane: Lane, until: float) -> list[bool]:
            lane.share(self._regions, until)
            request = wire.Keep(*self._asked(lane, span, until), _packed(pages))
            return _flags(lane.ask(request, wire.Flags, until), span)

        return self._call(ask, deadline)

    def _are_shared(self, pages: Sequence[Page]) -> bool:
        """Whether the daemon can reach every buffer of these pages, and they are cut alike."""
        regions = self._regions
        return (
            bool(regions)
            and len({len(page) for page in pages}) == 1
            and all(id(buffer.obj) in regions for page in pages for buffer in page)
        )

    # We move them, to and from the daemon's arena.

    def _borrow(
        self, span: Span, pages: Sequence[Page], deadline: Deadline
    ) -> list[MissReason | None] | MissReason:
        def ask(lane: Lane, until: float) -> list[MissReason | None]:
            lent = lane.ask(wire.Borrow(*self._asked(lane, span, until)), wire.Lent, until)
            arena = self._link.memory(lane).view
            for place, page in zip(wire.unpacked_places(lent.places), pages, strict=True):
                if place >= 0:
                    _move(arena, place, page, into_arena=False)
            lane.tell(wire.Return(), until)
            return self._outcome(lent, span)

        return self._call(ask, deadline)

    def _write(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool] | MissReason:
        def ask(lane: Lane, until: float) -> list[bool]:
            rooms = lane.ask(wire.Reserve(*self._asked(lane, span, until)), wire.Rooms, until)
            arena = self._link.memory(lane).view
            for place, page in zip(wire.unpacked_places(rooms.places), pages, strict=True):
                if place >= 0:
                    _move(arena, place, page, into_arena=True)
            return _flags(lane.ask(wire.Publish(answer_by(until)), wire.Flags, until), span)

        return self._call(ask, deadline)

    def _outcome(self, outcome: wire.Outcome | wire.Lent, span: Span) -> list[MissReason | None]:
        reasons: list[MissReason | None] = [None] * len(span.hashes)
        for reason, pages in outcome.missed.items():
            for page in pages:
                reasons[page] = MissReason(reason)
        for tier, served in outcome.served.items():
            self._counters.hits(tier, served, self.layout.page_bytes)
        return reasons


def _flags(answer: wire.Flags, span: Span) -> list[bool]:
    if len(answer.flags) != len(span.hashes):
        raise wire.WireError(f"{len(answer.flags)} answers for {len(span.hashes)} pages")
    return [flag == 1 for flag in answer.flags]


def _packed(pages: Sequence[Page]) -> bytes:
    return wire.packed_pairs([(address_of(buffer), len(buffer)) for page in pages for buffer in page])


def _move(arena: Buffer, place: int, page: Page, *, into_arena: bool) -> None:
    """Copy one page between its buffers and its block. ValueError for a block that is not all there."""
    for buffer in page:
        block = arena[place : place + len(buffer)]
        if into_arena:
            copy(block, buffer)
        else:
            copy(buffer, block)
        place += len(buffer)
