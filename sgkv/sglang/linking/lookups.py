"""Which prefixes could be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sglang.srt.mem_cache.hicache_storage import PoolTransfer

from sgkv.backends.deadline import Deadline
from sgkv.reasons import MissReason
from sgkv.sglang.linking.pools import KV
from sgkv.sglang.linking.transfers import LinkedShelves, kv_keys, trailing
from sgkv.sglang.shelves import Shelf
from sgkv.store.base import PageSession
from sgkv.store.pools import Need, PoolCover, leading, restorable
from sgkv.store.span import Span
from sgkv.transfer.ahead import Early, Wanted


@dataclass(frozen=True, slots=True)
class Demand:
    """What a prefix takes of one pool."""

    session: PageSession
    span: Span
    window: int | None
    """Only so many of the last pages; None is all of them."""

    def of(self, length: int) -> Span:
        """Pages for a prefix of `length` pages."""
        return self.span.part(self._first(length), length)

    def usable(self, lengths: Sequence[int], early: Early) -> list[int]:
        """Those of `lengths` that need no page which could not be read."""
        unreadable = early.failed(self.session)
        if self.window is None:
            first = leading([page_hash not in unreadable for page_hash in self.span.hashes])
            return [length for length in lengths if length <= first]
        hashes = self.span.hashes
        return [
            length for length in lengths if unreadable.keys().isdisjoint(hashes[self._first(length) : length])
        ]

    def _first(self, length: int) -> int:
        return 0 if self.window is None else max(0, length - self.window)


@dataclass(frozen=True, slots=True)
class Restorable:
    """The answer to a lookup."""

    asked: int
    """Pages of KV."""
    lengths: Sequence[int]
    """In pages, ascending; a length between two of them may not be restorable."""
    reason: MissReason | None
    """Why not more; None when all is."""
    demands: Sequence[Demand] = ()
    """Of every pool, KV last."""

    @property
    def pages(self) -> int:
        return self.lengths[-1] if self.lengths else 0

    @property
    def wanted(self) -> list[Wanted]:
        """What a load of the longest takes: side pools first, without which the KV is no use."""
        return [(demand.session, demand.of(self.pages)) for demand in self.demands]

    def without(self, early: Early) -> Restorable:
        """What is left of the answer now that some pages could not be read."""
        lengths = self.lengths
        for demand in self.demands:
            lengths = demand.usable(lengths, early)
        return replace(self, lengths=lengths)


def look_up(
    transfers: Sequence[PoolTransfer],
    before: Sequence[str] | None,
    shelves: LinkedShelves,
    deadline: Deadline,
) -> Restorable:
    """The prefix lengths that every pool can serve; SGLang intersects them over the ranks."""
    keys = kv_keys(transfers)
    shelf = shelves.usable(KV)
    if isinstance(shelf, MissReason) or not keys:
        return Restorable(len(keys), (), shelf if isinstance(shelf, MissReason) else None)
    span = Span(keys, before)
    found = shelf.session.lookup(span, deadline)
    lengths, demands = set(range(1, found.pages + 1)), [Demand(shelf.session, span, None)]
    for transfer in transfers:
        if str(transfer.name) != KV and lengths:
            demand = _demand(transfer, span, shelves)
            lengths &= _lengths(demand, found.pages, deadline) if demand else set()
            demands[:0] = [demand] if demand else []
    longest = max(lengths, default=0)
    reason = found.reason if longest == found.pages else MissReason.SIDE_POOL
    return Restorable(len(keys), sorted(lengths), reason, demands)


def _demand(transfer: PoolTransfer, span: Span, shelves: LinkedShelves) -> Demand | None:
    """None where the pool cannot be used now."""
    shelf = shelves.usable(str(transfer.name))
    window = max(1, len(transfer.keys or ())) if trailing(transfer) else None
    return Demand(shelf.session, span, window) if isinstance(shelf, Shelf) else None


def _lengths(demand: Demand, kv_pages: int, deadline: Deadline) -> set[int]:
    # The whole span is asked for: the KV may end inside a chunk of this pool.
    present = demand.session.contains(demand.span, deadline)[:kv_pages]
    if demand.window is None:
        return restorable(PoolCover(Need.ALL, present))
    return restorable(PoolCover(Need.TRAILING, present, demand.window))
