"""Filling an engine's pages from the tiers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from sgkv.backends.base import GetItem, Part, Status, part_of
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import BlobIdentity, BlobRead, Page
from sgkv.keys import chunk_keys, page_keys
from sgkv.reasons import DOWN, MissReason, reason_of
from sgkv.store.memo import ChunkMemo
from sgkv.store.span import Span
from sgkv.store.tier import Tier
from sgkv.store.together import Steps, together

_CHECKED = frozenset({Status.OK, Status.CORRUPT})

Asking = Steps[GetItem, Status, None]
"""Yields what to get from a tier, to be sent what became of it."""


@dataclass(slots=True)
class Reading:
    """One read under way. `reasons[i]` is None once page i is filled and verified."""

    span: Span
    pages: Sequence[Page]
    identity: BlobIdentity
    arena_namespace: str
    pages_per_chunk: int
    memo: ChunkMemo
    reasons: list[MissReason | None] = field(init=False)
    sources: list[Tier | None] = field(init=False)
    """The tier that each page came from."""
    served_by: dict[str, int] = field(default_factory=dict)
    """Pages by tier name."""
    promotable: list[tuple[Tier, BlobRead]] = field(default_factory=list)
    """Verified reads from below the arena."""

    def __post_init__(self) -> None:
        self.reasons = [MissReason.ABSENT] * len(self.pages)
        self.sources = [None] * len(self.pages)

    def ask(self, tier: Tier) -> Asking:
        """Read from one tier the pages that those above it could not give."""
        wanted = self._left()
        yield from self._from_arena(wanted) if tier.arena is not None else self._from_chunks(tier, wanted)
        served = [page for page in wanted if not self.reasons[page]]
        if len(served) == len(self.pages):
            self.sources = [tier] * len(served)
        else:
            for page in served:
                self.sources[page] = tier
        self.served_by[tier.name] = len(served)

    def give_up(self, reason: MissReason) -> None:
        """Say why no more tiers are asked."""
        self._miss(self._left(), reason)

    def _left(self) -> list[int]:
        return [page for page, reason in enumerate(self.reasons) if reason]

    def _from_arena(self, wanted: Sequence[int]) -> Asking:
        # Last page first: what is touched last is evicted last, and parents must outlive children.
        order = wanted[::-1]
        keys = page_keys(self.arena_namespace, [self.span.hashes[page] for page in order])
        items = [GetItem(key, whole(self.pages[page])) for key, page in zip(keys, order, strict=True)]
        for page, status in zip(order, (yield items), strict=True):
            self.reasons[page] = None if status is Status.OK else reason_of(status)

    def _from_chunks(self, tier: Tier, wanted: Sequence[int]) -> Asking:
        """Full chunks first, then what is left as single pages."""
        chunks, located = self._chunk_reads(wanted)
        down = yield from self._run(tier, chunks, located)
        left = [page for page in wanted if self.reasons[page]]
        if down is None:
            yield from self._run(tier, self._page_reads(left), [[page] for page in left])
            return
        self._miss(left, reason_of(down))

    def _miss(self, pages: Iterable[int], reason: MissReason) -> None:
        """Say why no tier was asked for pages that are not known to be bad."""
        for page in pages:
            if self.reasons[page] is MissReason.ABSENT:
                self.reasons[page] = reason

    def _chunk_reads(self, wanted: Sequence[int]) -> tuple[list[BlobRead], list[list[int]]]:
        groups = self._by_chunk(wanted)
        keys = chunk_keys(self.identity.namespace, list(groups))
        reads = [
            self._blob_read(key, self.pages_per_chunk, positions, pages)
            for key, (pages, positions) in zip(keys, groups.values(), strict=True)
        ]
        return reads, [pages for pages, _ in groups.values()]

    def _page_reads(self, wanted: Sequence[int]) -> list[BlobRead]:
        keys = page_keys(self.identity.namespace, [self.span.hashes[page] for page in wanted])
        return [self._blob_read(key, 1, [0], [page]) for key, page in zip(keys, wanted, strict=True)]

    def _blob_read(self, key: str, total: int, positions: Sequence[int], wanted: Sequence[int]) -> BlobRead:
        hashes = [self.span.hashes[page] for page in wanted]
        pages = [self.pages[page] for page in wanted]
        return BlobRead(key, self.identity, total, positions, hashes, pages)

    def _by_chunk(self, wanted: Sequence[int]) -> dict[str, tuple[list[int], list[int]]]:
        """Wanted pages and their positions by the chunk they lie in, as far as span or memo can tell.

        What a lookup saw comes before a guess, and after what the engine says.
        """
        groups: dict[str, tuple[list[int], list[int]]] = {}
        left = list(wanted)
        if self.span.before is None:
            left = self._take_remembered(left, groups)
        left = self._take_aligned(left, groups)
        if self.span.before is not None:  # a chunk may end beyond the span
            self._take_remembered(left, groups)
        return groups

    def _take_aligned(
        self, wanted: Sequence[int], groups: dict[str, tuple[list[int], list[int]]]
    ) -> list[int]:
        """Group pages by the span's own chunks; returns those in none of them."""
        left = set(wanted)
        for chunk in self.span.chunks(self.pages_per_chunk):
            pages = [page for page in range(chunk.first, chunk.stop) if page in left]
            if pages and chunk.last_hash not in groups:
                shift = chunk.skipped - chunk.first
                groups[chunk.last_hash] = pages, [page + shift for page in pages]
                left.difference_update(pages)
        return sorted(left)

    def _take_remembered(
        self, wanted: Sequence[int], groups: dict[str, tuple[list[int], list[int]]]
    ) -> list[int]:
        """Group pages by the chunks that lookups saw; returns those of which none did."""
        left = []
        for page in wanted:
            spot = self.memo.find(self.span.hashes[page])
            if spot is None:
                left.append(page)
                continue
            pages, positions = groups.setdefault(spot.last_hash, ([], []))
            pages.append(page)
            positions.append(spot.position)
        return left

    def _run(
        self, tier: Tier, reads: Sequence[BlobRead], located: Iterable[Sequence[int]]
    ) -> Steps[GetItem, Status, Status | None]:
        """Read blobs and settle their pages; why the tier should not be asked again now, if so."""
        if not reads:
            return None
        statuses = yield [read.item() for read in reads]
        good: list[str] = []
        bad: list[str] = []
        old: list[str] = []
        for read, status, pages in zip(reads, statuses, located, strict=True):
            self._settle(read, status, pages)
            if status is Status.OK:
                good.append(read.key)
                self.promotable.append((tier, read))
            elif MissReason.EXPIRED in read.outcomes:
                old.append(read.key)
            elif status is Status.SHORT or (status is Status.CORRUPT and _unusable(read)):
                bad.append(read.key)
        if good:
            tier.backend.touch(good[::-1])
        if bad:
            tier.backend.quarantine(bad)
        if old:
            tier.backend.delete(old)
        return next(filter(DOWN.__contains__, statuses), None)

    def _settle(self, read: BlobRead, status: Status, pages: Sequence[int]) -> None:
        outcomes = read.outcomes if status in _CHECKED else [reason_of(status)] * len(pages)
        for page, outcome in zip(pages, outcomes, strict=True):
            if outcome is not MissReason.ABSENT:
                self.reasons[page] = outcome


def read_all(readings: Sequence[Reading], tiers: Sequence[Tier], deadline: Deadline) -> None:
    """Ask the tiers in order, each for the pages that those above it could not give."""
    for tier in tiers:
        left = [reading for reading in readings if any(reading.reasons)]
        late = bool(left) and deadline.over
        if late:
            for reading in left:
                reading.give_up(MissReason.TIMEOUT)
        if late or not left:
            return
        together([reading.ask(tier) for reading in left], partial(_get, tier, deadline))


def _get(tier: Tier, deadline: Deadline, items: Sequence[GetItem]) -> list[Status]:
    if tier.arena is not None:
        return tier.backend.get(items)
    # A deadline of the tier's own: one that a slow tier used up is cancelled, and the next tier
    # must still be able to land in the same pages.
    return tier.backend.get(items, Deadline(deadline.remaining()))


def _unusable(read: BlobRead) -> bool:
    """Whether no reader could ever use this blob: then it only costs space and reads."""
    return any(outcome in (MissReason.CORRUPT, MissReason.FOREIGN) for outcome in read.outcomes)


def whole(page: Page) -> list[Part]:
    """Parts that fill a page from the start of a blob without header."""
    return list(map(part_of, zip(accumulate(map(len, page), initial=0), page, strict=False)))
