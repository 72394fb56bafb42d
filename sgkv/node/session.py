"""A session whose store is in the node's daemon. Stands where `sgkv.store.session.Session` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sgkv.backends.cpu import Lease
from sgkv.backends.cpu.copying import address_of
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.counters import Counters
from sgkv.identity import Namespace
from sgkv.node import wire
from sgkv.node.copies import Batch
from sgkv.node.framing import ClosedError
from sgkv.node.lane import Lane, SharedRegion
from sgkv.node.link import Link, answer_by
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession
from sgkv.store.lookup import Found
from sgkv.store.span import Span

_PIECE = 32 << 20
"""Bytes of one message's pages: enough that what is said costs nothing beside what is moved."""
_FILLED_PIECE = 64 << 20
"""The same where the next request waits for the answer."""
_CLEAR_SECONDS = 10.0
_REASONS = frozenset(reason.value for reason in MissReason)
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
        self._clears, self._cleared = 0, 0
        """How often it was to be cleared, and which of these the daemon has done."""

    def lookup(self, span: Span, deadline: Deadline) -> Found:
        def ask(lane: Lane, until: float) -> wire.Found:
            return lane.ask(wire.Lookup(*self._asked(lane, span, until)), wire.Found, until)

        answer = self._call(ask, deadline)
        if isinstance(answer, MissReason):
            return Found(0, answer)
        return Found(answer.pages, _reason(answer.reason) if answer.reason else None)

    def contains(self, span: Span, deadline: Deadline) -> list[bool]:
        def ask(lane: Lane, until: float) -> list[bool]:
            request = wire.Contains(*self._asked(lane, span, until))
            return _flags(lane.ask(request, wire.Flags, until), len(span.hashes))

        answer = self._call(ask, deadline)
        return [False] * len(span.hashes) if isinstance(answer, MissReason) else answer

    def get(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[MissReason | None]:
        reasons: list[MissReason | None] = []

        def ask(lane: Lane, until: float) -> None:
            if lane.fenced and self._are_shared(pages):
                lane.share(self._regions, until)
                self._batch(lane, span, until, _FILLED_PIECE).run(
                    lambda piece: wire.Fill(*self._asked(lane, span, until, piece), _packed(pages, piece)),
                    lambda piece: reasons.extend(self._outcome(self._filled(lane, until), len(piece))),
                    ahead=1,  # whatever ends this call, no other request may be writing into its pages
                )
            else:
                self._batch(lane, span, until).read(
                    self._link.memory(lane).view,
                    pages,
                    lambda piece: wire.Borrow(*self._asked(lane, span, until, piece)),
                    lambda piece, lent: reasons.extend(self._outcome(lent, len(piece))),
                )

        trouble = self._call(ask, deadline)
        if trouble is not None:
            reasons += [trouble] * (len(pages) - len(reasons))
        self._counters.misses(reasons)
        return reasons

    def set(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool]:
        done: list[bool] = []

        def ask(lane: Lane, until: float) -> None:
            batch = self._batch(lane, span, until)
            if self._are_shared(pages):
                lane.share(self._regions, until)
                batch.run(
                    lambda piece: wire.Keep(*self._asked(lane, span, until, piece), _packed(pages, piece)),
                    lambda piece: done.extend(_flags(lane.hear(wire.Flags, until), len(piece))),
                    ahead=1,  # whatever ends this call, the daemon must not go on to read pages of ours
                )
            else:
                batch.write(
                    self._link.memory(lane).view,
                    pages,
                    lambda piece: wire.Reserve(*self._asked(lane, span, until, piece)),
                    lambda: wire.Publish(answer_by(until)),
                    lambda piece, flags: done.extend(_flags(flags, len(piece))),
                )

        self._call(ask, deadline)
        return done + [False] * (len(pages) - len(done))

    def lease(self, span: Span) -> list[Lease | None]:
        """None of them: a lease that outlived its call would have to be given back by the daemon's grace."""
        return [None] * len(span.hashes)

    def pin(self, span: Span, pinned: bool = True) -> list[bool]:
        def ask(lane: Lane, until: float) -> list[bool]:
            request = wire.Pin(*self._asked(lane, span, until), pinned)
            return _flags(lane.ask(request, wire.Flags, until), len(span.hashes))

        answer = self._call(ask, Deadline(_PIN_SECONDS))
        return [False] * len(span.hashes) if isinstance(answer, MissReason) else answer

    def clear(self) -> None:
        """Where the daemon cannot be told, nothing is read until it could be: every call tries first."""
        self._clears += 1
        self._call(lambda _lane, _until: None, Deadline(_CLEAR_SECONDS))

    def _call(self, work: Callable[[Lane, float], T], deadline: Deadline) -> T | MissReason:
        """`work` on a connection, after what was to be cleared is."""

        def cleared(lane: Lane, until: float) -> T:
            asked = self._clears
            if self._cleared < asked:
                lane.ask(wire.Clear(lane.number(self, until)), wire.Done, until)
                self._cleared = asked  # and not what was asked for meanwhile
            return work(lane, until)

        return self._link.call(cleared, deadline)

    def _asked(
        self, lane: Lane, span: Span, until: float, piece: range | None = None
    ) -> tuple[int, float, bytes, bytes | None]:
        """The fields that every message about pages begins with; `piece` is a part of the span."""
        part = span if piece is None else span.part(piece.start, piece.stop)
        return lane.number(self, until), answer_by(until), *wire.packed_span(part)

    def _batch(self, lane: Lane, span: Span, until: float, size: int = _PIECE) -> Batch:
        """The pages of a span in pieces of about `size` bytes that end where chunks do."""
        lane.number(self, until)  # now: nothing may be asked while answers are to come
        most = max(1, size // self.layout.page_bytes)
        return Batch(lane, span.batches(most, self.pages_per_chunk), until)

    def _filled(self, lane: Lane, until: float) -> wire.Outcome:
        """Wait until the daemon has let go of the pages that it was lent, whatever it takes.

        One that ends the connection has: it does so after its last write, or by its own end.
        """
        try:
            return lane.hear(wire.Outcome, until)
        except ClosedError:
            raise
        except (TimeoutError, wire.WireError):
            return self._insist(lane)

    def _insist(self, lane: Lane) -> wire.Outcome:
        """The same, from now on: it may be us who slept past the answer."""
        try:
            return lane.hear(wire.Outcome, time.monotonic() + self._fence)
        except ClosedError:
            raise
        except (TimeoutError, wire.WireError):
            self._counters.add("node_fenced")
            lane.fence()
            raise

    def _are_shared(self, pages: Sequence[Page]) -> bool:
        """Whether the daemon can reach every buffer of these pages, and they are cut alike."""
        regions = self._regions
        return (
            bool(regions)
            and len({len(page) for page in pages}) == 1
            and all(id(buffer.obj) in regions for page in pages for buffer in page)
        )

    def _outcome(self, outcome: wire.Outcome | wire.Lent, count: int) -> list[MissReason | None]:
        reasons: list[MissReason | None] = [None] * count
        for reason, pages in outcome.missed.items():
            for page in pages:
                reasons[page] = _reason(reason)
        for tier, served in outcome.served.items():
            self._counters.hits(tier, served, self.layout.page_bytes, self.namespace.prompt_tokens)
        return reasons


def _reason(name: str) -> MissReason:
    """A newer daemon may know more reasons."""
    return MissReason(name) if name in _REASONS else MissReason.TIER_ERROR


def _flags(answer: wire.Flags, count: int) -> list[bool]:
    if len(answer.flags) != count:
        raise wire.WireError(f"{len(answer.flags)} answers for {count} pages")
    return [flag == 1 for flag in answer.flags]


def _packed(pages: Sequence[Page], piece: range) -> bytes:
    """Where the engine has the buffers of these pages."""
    buffers = (buffer for page in pages[piece.start : piece.stop] for buffer in page)
    return wire.packed_pairs([(address_of(buffer), len(buffer)) for buffer in buffers])
