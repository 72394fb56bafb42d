"""One rank's pages, stored as the cells of a grid that other ranks and servers share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, compress

import numpy as np

from sgkv.backends.base import Buffer
from sgkv.backends.cpu import Lease
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.chunk.cut import Cut
from sgkv.chunk.layout import PageLayout
from sgkv.identity import Namespace
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession, PageStore
from sgkv.store.lookup import Found
from sgkv.store.span import Span

_SCRATCH_BYTES = 32 << 20
_SPARE = 2
"""Scratch memories kept: an engine reads in one thread and writes in another."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a rank has of one cell."""

    namespace: Namespace
    cut: Cut
    """Where it lies in the rank's pages."""
    writes: bool = True
    """Whether this rank stores it; one of those that hold it does."""


def open_cells(
    store: PageStore,
    cells: Sequence[Cell],
    layout: PageLayout,
    producer: str = "",
    *,
    scratch_bytes: int = _SCRATCH_BYTES,
) -> PageSession:
    """A session for a rank's pages, laid out as `layout`, which consist of `cells`.

    Cells that do not lie together in a page are copied `scratch_bytes` at a time, or one chunk.
    """
    (first, *others) = cells
    if first.writes and first.cut.whole and not others:
        return store.open(first.namespace, layout, producer)
    return CellSession(store, cells, layout, producer, scratch_bytes)


class CellSession(PageSession):
    """Pages of a rank that are whole where all of its cells are.

    A cell is stored as a page of its own, in its own namespace, and all of them move in one batch. Where a
    cell lies in one run a plane it is read and written in place; else through scratch memory, in batches.
    """

    def __init__(
        self,
        store: PageStore,
        cells: Sequence[Cell],
        layout: PageLayout,
        producer: str,
        scratch_bytes: int,
    ) -> None:
        self.layout = layout
        self.namespace = cells[0].namespace
        self._store = store
        self.cells = cells
        self._sessions = [store.open(cell.namespace, cell.cut.layout, producer) for cell in cells]
        self.pages_per_chunk = self._sessions[0].pages_per_chunk
        self._spare: deque[Buffer] = deque(maxlen=_SPARE)
        in_place = all(cell.cut.contiguous for cell in cells)
        self._most = None if in_place else max(self.pages_per_chunk, scratch_bytes // layout.page_bytes)

    def lookup(self, span: Span, deadline: Deadline) -> Found:
        found = self._store.lookup_each(self._sessions, span, deadline)
        return min(found, key=lambda one: one.pages)

    def contains(self, span: Span, deadline: Deadline) -> list[bool]:
        return _all(self._store.contains_each(self._sessions, span, deadline))

    def get(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[MissReason | None]:
        reasons: list[MissReason | None] = []
        for batch in self._batches(span):
            some = span.part(batch.start, batch.stop)
            reasons += self._get(some, pages[batch.start : batch.stop], deadline)
        return reasons

    def set(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool]:
        """True for pages of cells that are another rank's to store, too."""
        if not any(cell.writes for cell in self.cells):
            return [True] * len(pages)
        stored: list[bool] = []
        for batch in self._batches(span):
            some = span.part(batch.start, batch.stop)
            stored += self._set(some, pages[batch.start : batch.stop], deadline)
        return stored

    def lease(self, span: Span) -> list[Lease | None]:
        """None: no page of the rank lies in one place."""
        return [None] * len(span.hashes)

    def pin(self, span: Span, pinned: bool = True) -> list[bool]:
        return _all([session.pin(span, pinned) for session in self._sessions])

    def clear(self) -> None:
        for session in self._sessions:
            session.clear()

    def _batches(self, span: Span) -> Iterator[range]:
        return span.batches(self._most or max(1, len(span.hashes)), self.pages_per_chunk)

    def _get(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[MissReason | None]:
        with self._targets(self.cells, pages) as parts:
            found = self._store.get_each(self._sessions, span, parts, deadline)
            reasons = [next(filter(None, each), None) for each in zip(*found, strict=True)]
            for cell, part in zip(self.cells, parts, strict=True):
                if not cell.cut.contiguous:
                    for page, (buffer,), reason in zip(pages, part, reasons, strict=True):
                        if reason is None:
                            cell.cut.scatter(buffer, page)
        return reasons

    def _set(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool]:
        ours = [cell for cell in self.cells if cell.writes]
        sessions = list(compress(self._sessions, (cell.writes for cell in self.cells)))
        with self._targets(ours, pages) as parts:
            for cell, part in zip(ours, parts, strict=True):
                if not cell.cut.contiguous:
                    for page, (buffer,) in zip(pages, part, strict=True):
                        cell.cut.gather(page, buffer)
            return _all(self._store.set_each(sessions, span, parts, deadline))

    @contextmanager
    def _targets(self, cells: Sequence[Cell], pages: Sequence[Page]) -> Iterator[list[list[Page]]]:
        """Pages of each cell: in place in those of the rank, or else in scratch memory, one buffer each.

        The memory is used again, as an engine uses its pages again: no tier touches it after its call.
        """
        sizes = [0 if cell.cut.contiguous else cell.cut.layout.page_bytes for cell in cells]
        scratch = self._scratch(sum(sizes) * len(pages))
        starts = accumulate((size * len(pages) for size in sizes), initial=0)
        try:
            yield [
                _pieces(scratch[start:], size, len(pages)) if size else [cell.cut.views(p) for p in pages]
                for cell, size, start in zip(cells, sizes, starts, strict=False)
            ]
        finally:
            self._spare.append(scratch)

    def _scratch(self, size: int) -> Buffer:
        """Memory of at least `size` bytes. New memory costs more than what is copied into it."""
        with suppress(IndexError):
            spare = self._spare.pop()
            if len(spare) >= size:
                return spare
        return np.empty(size, np.uint8).data


def _pieces(scratch: Buffer, size: int, count: int) -> list[Page]:
    return [[scratch[start : start + size]] for start in range(0, count * size, size)]


def _all(flags: Sequence[Sequence[bool]]) -> list[bool]:
    return list(map(all, zip(*flags, strict=True)))
