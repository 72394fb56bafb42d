"""Reads of slow tiers that begin as soon as it is known what will be asked for, into bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from sgkv.backends.base import Bound, Buffer
from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession
from sgkv.store.span import Span, runs
from sgkv.transfer.memory import PageMemory

_THREADS = 4
"""Spans read at once; a tier spreads each of them over threads of its own."""
_BACKLOG = 64

Wanted = tuple[PageSession, Span]


@dataclass(slots=True)
class _Piece:
    """Blocks of one read, until neither the read nor the request needs them."""

    blocks: Sequence[int]
    holders: int = 2


class Early:
    """What one request will need, in host memory or on its way there. Any thread.

    Pages are whole, verified, in one piece and in the order of their session.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.deadline = Deadline(seconds)
        """Of all reads."""
        self.interest = Deadline(seconds)
        """Renewed whenever somebody asks for the request."""
        self.pieces: list[_Piece] = []
        self._reads: list[Future[None]] = []
        self._expected: set[tuple[PageSession, str]] = set()
        self._lock = threading.Lock()
        self._pages: dict[PageSession, dict[str, Buffer]] = {}
        self._failed: dict[PageSession, dict[str, MissReason]] = {}

    def renew(self) -> None:
        self.interest = Deadline(self._seconds)

    def expect(self, session: PageSession, span: Span, read: Future[None], piece: _Piece) -> None:
        self._expected.update((session, page_hash) for page_hash in span.hashes)
        self._reads.append(read)
        self.pieces.append(piece)

    def settled(self, timeout: float) -> bool:
        """Whether nothing is being read any more, or nothing more will come; waits `timeout` seconds."""
        left = self.deadline.remaining()
        late = wait(self._reads, timeout if left is None else min(timeout, left)).not_done
        return not late or self.deadline.over

    def page(self, session: PageSession, page_hash: str) -> Buffer | None:
        """A page that has arrived."""
        return self._pages.get(session, {}).get(page_hash)

    def failed(self, session: PageSession) -> Mapping[str, MissReason]:
        """Pages that could not be read, and why."""
        return self._failed.get(session, {})

    @property
    def failures(self) -> int:
        """Pages of all sessions that could not be read."""
        return sum(map(len, list(self._failed.values())))

    def unread(self, session: PageSession, span: Span) -> Iterator[int]:
        """Pages of the span that are not in the cpu tier and that nothing was begun for."""
        for at, (page_hash, near) in enumerate(zip(span.hashes, session.near(span), strict=True)):
            if not near and (session, page_hash) not in self._expected:
                yield at

    def settle(
        self, session: PageSession, arrived: Mapping[str, Buffer], failed: Mapping[str, MissReason]
    ) -> None:
        """Take note of how a read has ended. Dictionaries are replaced: others read them without a lock."""
        with self._lock:
            self._pages[session] = {**self._pages.get(session, {}), **arrived}
            self._failed[session] = {**self._failed.get(session, {}), **failed}


class ReadAhead:
    """The requests that wait for their load, and what is read for them into memory of a fixed size.

    One thread, but for `free` and `held`. A request that is neither taken nor dropped keeps its bytes
    until nobody has asked for it for as long as its reads may take, and another request needs them.
    """

    def __init__(self, memory: PageMemory, counters: Counters) -> None:
        self._memory = memory
        self._counters = counters
        self._requests: dict[str, Early] = {}
        self._workers = WorkerPool(_THREADS, "sgkv-linker-ahead", backlog=_BACKLOG)
        self._lock = threading.Lock()

    @property
    def held(self) -> Bound:
        """Bytes that are read ahead and not loaded yet, of those there may be."""
        return self._memory.used

    def begin(self, rid: str, wanted: Sequence[Wanted], seconds: float) -> None:
        """Read for a request what the cpu tier has not; all of it ends `seconds` after its first call.

        Pages that find no room, the last ones first, are left out and counted.
        """
        early = self._requests.get(rid) or Early(seconds)
        for session, span in wanted:
            for run in runs(early.unread(session, span)):
                if not early.deadline.over:
                    self._read(early, session, span.part(run.start, run.stop))
        if early.pieces:
            self._requests[rid] = early

    def get(self, rid: str) -> Early | None:
        """What is read for a request that is asked for again."""
        early = self._requests.get(rid)
        if early is not None:
            early.renew()
        return early

    def take(self, rid: str) -> Early | None:
        """Hand over what was read for a request; its pages count until `free`."""
        return self._requests.pop(rid, None)

    def drop(self, rid: str) -> None:
        """The request will not be loaded."""
        early = self.take(rid)
        if early is not None:
            self.free(early)

    def free(self, early: Early) -> None:
        """The pages are not used any more; what is being read counts until it has been. Any thread."""
        early.deadline.cancel()  # reads that have not begun do not begin
        pieces, early.pieces = early.pieces, []
        for piece in pieces:
            self._let_go(piece)

    def reset(self) -> None:
        for rid in list(self._requests):
            self.drop(rid)

    def close(self, timeout: float) -> None:
        self.reset()
        self._workers.close(timeout)

    def _read(self, early: Early, session: PageSession, span: Span) -> None:
        blocks = self._room(len(span.hashes), session.layout.page_bytes)
        self._counters.add("read_ahead_left_out_pages", len(span.hashes) - len(blocks))
        if not blocks:
            return
        span, piece = span.part(0, len(blocks)), _Piece(blocks)
        read = self._workers.submit(lambda: self._fill(early, session, span, piece))
        if read is None:
            self._let_go(piece)
            self._let_go(piece)
            return
        early.expect(session, span, read, piece)

    def _room(self, pages: int, size: int) -> list[int]:
        """Blocks for pages, if need be of requests that nobody asks for any more."""
        blocks = self._memory.take(pages, size)
        for rid, early in list(self._requests.items()):
            if len(blocks) < pages and early.interest.over:
                self.drop(rid)
                blocks += self._memory.take(pages - len(blocks), size)
        return blocks

    def _fill(self, early: Early, session: PageSession, span: Span, piece: _Piece) -> None:
        """A thread of ours. However it ends, every page of the span has arrived or failed."""
        arrived: dict[str, Buffer] = {}
        failed = dict.fromkeys(span.hashes, MissReason.INTERNAL)
        with contained("reading ahead", self._counters):
            views = [self._memory.view(block, session.layout.page_bytes) for block in piece.blocks]
            arrived, failed = _outcome(session, span, views, early.deadline)
        early.settle(session, arrived, failed)
        self._let_go(piece)

    def _let_go(self, piece: _Piece) -> None:
        with self._lock:
            piece.holders -= 1
            unused = not piece.holders
        if unused:
            self._memory.give_back(piece.blocks)


def _outcome(
    session: PageSession, span: Span, views: Sequence[Buffer], deadline: Deadline
) -> tuple[dict[str, Buffer], dict[str, MissReason]]:
    """Read a span into `views`: pages that arrived, and reasons of those that did not."""
    if deadline.over:
        return {}, dict.fromkeys(span.hashes, MissReason.TIMEOUT)
    reasons = session.get(span, [[view] for view in views], deadline)
    ended = list(zip(span.hashes, views, reasons, strict=True))
    arrived = {page_hash: view for page_hash, view, reason in ended if reason is None}
    return arrived, {page_hash: reason for page_hash, _, reason in ended if reason is not None}
