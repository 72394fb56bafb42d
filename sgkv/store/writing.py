"""From an engine's pages to blobs: which pages form chunks, and which stay single."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from sgkv.backends.base import PutItem, Status
from sgkv.backends.cpu import CpuBackend, Lease, Reservation
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import BlobIdentity, Page, put_item
from sgkv.counters import Counters
from sgkv.keys import chunk_keys, page_keys
from sgkv.store.span import ChunkSlice, Span
from sgkv.store.tier import Tier
from sgkv.store.together import Steps, together
from sgkv.store.write_behind import Work, WriteBehind


@dataclass(frozen=True, slots=True)
class DirectWrite:
    """One write that passes by the cpu tier."""

    items: Sequence[PutItem]
    covered: Sequence[range]
    """Pages of each item."""
    chain: Sequence[str]
    """Keys of all chunks of the sequence."""
    counters: Counters
    stored: list[bool]

    def into(self, tier: Tier) -> Steps[PutItem, Status, None]:
        statuses = yield self.items
        self.counters.writes(tier.name, statuses, [item.size for item in self.items])
        tier.backend.touch(self.chain[::-1])
        for status, covers in zip(statuses, self.covered, strict=True):
            if status.ok:
                self.stored[covers.start : covers.stop] = [True] * len(covers)


@dataclass(frozen=True, slots=True)
class Writing:
    """How one session writes; the pages' order and identity are the session's."""

    identity: BlobIdentity
    arena_namespace: str
    pages_per_chunk: int
    counters: Counters

    def through_arena(
        self, arena: Tier, behind: WriteBehind | None, span: Span, pages: Sequence[Page], expires_at: int
    ) -> Steps[PutItem, Status, list[bool]]:
        """Copy into the arena and leave the lower tiers to write-behind."""
        keys = page_keys(self.arena_namespace, span.hashes)
        rows = zip(keys, pages, self._before(span, keys), strict=True)
        statuses = yield [PutItem(key, page, None, expires_at, after) for key, page, after in rows]
        return self.settle(arena, behind, span, statuses, expires_at)

    def reserve(self, arena: CpuBackend, span: Span, expires_at: int) -> list[Reservation | Status]:
        """Room in the arena for each page, or EXISTS or FULL."""
        keys, size = page_keys(self.arena_namespace, span.hashes), self.identity.layout.page_bytes
        rows = zip(keys, self._before(span, keys), strict=True)
        return [arena.reserve(key, size, expires_at, after) for key, after in rows]

    def _before(self, span: Span, keys: Sequence[str]) -> list[str | None]:
        """Arena keys of the pages that those of a span continue."""
        earlier = page_keys(self.arena_namespace, span.before[-1:]) if span.before else [None]
        return [*earlier, *keys[:-1]] if keys else []

    def settle(
        self, arena: Tier, behind: WriteBehind | None, span: Span, statuses: Sequence[Status], expires_at: int
    ) -> list[bool]:
        """Count what became of a span's pages in the arena, and leave the lower tiers to write-behind."""
        self.counters.writes(arena.name, statuses, [self.identity.layout.page_bytes] * len(statuses))
        if behind is not None and arena.arena is not None:
            self._schedule(arena.arena, behind, span, expires_at)
        return [status.ok for status in statuses]

    def direct(self, span: Span, pages: Sequence[Page], expires_at: int) -> DirectWrite:
        """Chunk blobs straight from the engine's pages; a page counts where any tier has it."""
        items, covered = self._direct_items(span, pages, expires_at)
        chain = chunk_keys(self.identity.namespace, self._chain(span))
        return DirectWrite(items, covered, chain, self.counters, [False] * len(pages))

    def _direct_items(
        self, span: Span, pages: Sequence[Page], expires_at: int
    ) -> tuple[list[PutItem], list[range]]:
        whole = [chunk for chunk in self._chunks(span) if not chunk.skipped]
        covered = [range(chunk.first, chunk.stop) for chunk in whole]
        in_chunks = {page for pages_ in covered for page in pages_}
        single = [page for page in range(len(pages)) if page not in in_chunks]
        namespace = self.identity.namespace
        keys = chunk_keys(namespace, [c.last_hash for c in whole])
        chain = chunk_keys(namespace, self._chain(span))
        before = dict(pairwise(reversed(chain)))
        items = [
            put_item(
                key,
                self.identity,
                span.hashes[c.first : c.stop],
                pages[c.first : c.stop],
                expires_at,
                before.get(key),
            )
            for key, c in zip(keys, whole, strict=True)
        ]
        items += [
            put_item(key, self.identity, [span.hashes[page]], [pages[page]], expires_at)
            for key, page in zip(page_keys(namespace, [span.hashes[p] for p in single]), single, strict=True)
        ]
        return items, covered + [range(page, page + 1) for page in single]

    def _schedule(self, arena: CpuBackend, behind: WriteBehind, span: Span, expires_at: int) -> None:
        """Queue the span's chunks; its tail, and what cannot form a chunk, as single pages."""
        if not self._aligned(span):
            self._queue_pages(arena, behind, span.hashes, expires_at, hold=False)
            return
        chain = self._chain(span)
        for chunk in self._chunks(span):
            hashes = span.chunk_hashes(chunk)
            leases = self._lease(arena, hashes)
            if all(leases):
                present = [lease for lease in leases if lease]
                behind.submit(Work(self.identity, hashes, present, True, expires_at, chain))
                for page_hash in hashes:
                    behind.take_tail(self.identity.namespace, page_hash)
            else:  # earlier pages of the chunk have left the arena
                _release(leases)
                own = span.hashes[chunk.first : chunk.stop]
                self._queue_pages(arena, behind, own, expires_at, hold=False)
        tail = span.hashes[span.tail(self.pages_per_chunk) :]
        self._queue_pages(arena, behind, tail, expires_at, hold=True)

    def _queue_pages(
        self, arena: CpuBackend, behind: WriteBehind, hashes: Sequence[str], expires_at: int, *, hold: bool
    ) -> None:
        place = behind.hold_tail if hold else behind.submit
        leases = self._lease(arena, hashes)
        for page_hash, lease in zip(hashes, leases, strict=True):
            if lease is not None:
                place(Work(self.identity, [page_hash], [lease], False, expires_at))
        # Not taken by a full arena, or already evicted from it by a promotion.
        self.counters.add("write_behind_dropped_pages", leases.count(None))

    def _lease(self, arena: CpuBackend, hashes: Sequence[str]) -> Sequence[Lease | None]:
        return arena.lease(page_keys(self.arena_namespace, hashes), use=False)

    def _aligned(self, span: Span) -> bool:
        """Whether it is known where chunks begin."""
        return span.before is not None or self.pages_per_chunk == 1

    def _chunks(self, span: Span) -> Sequence[ChunkSlice]:
        return list(span.chunks(self.pages_per_chunk)) if self._aligned(span) else []

    def _chain(self, span: Span) -> list[str]:
        return span.chunk_chain(self.pages_per_chunk) if self._aligned(span) else []


def write_all(writes: Sequence[DirectWrite], tiers: Sequence[Tier], deadline: Deadline) -> None:
    """Write to every tier."""
    for tier in tiers:
        together([write.into(tier) for write in writes], partial(_put, tier, deadline))


def write_through(
    writes: Sequence[Steps[PutItem, Status, list[bool]]], arena: Tier, deadline: Deadline
) -> list[list[bool]]:
    """Carry out writes through the arena; which pages of each are stored."""
    return together(writes, partial(_put, arena, deadline))


def _put(tier: Tier, deadline: Deadline, items: Sequence[PutItem]) -> list[Status]:
    return tier.backend.put(items, deadline)


def _release(leases: Sequence[Lease | None]) -> None:
    for lease in leases:
        if lease is not None:
            lease.release()
