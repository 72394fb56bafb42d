"""Which prefixes could be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang.srt.mem_cache.hicache_storage import PoolTransfer

from sgkv.backends.deadline import Deadline
from sgkv.reasons import MissReason
from sgkv.sglang.linking.pools import KV
from sgkv.sglang.linking.transfers import LinkedShelves, trailing
from sgkv.sglang.shelves import Shelf
from sgkv.store.pools import Need, PoolCover, restorable
from sgkv.store.span import Span


@dataclass(frozen=True, slots=True)
class Restorable:
    """The answer to a lookup."""

    asked: int
    """Pages of KV."""
    lengths: Sequence[int]
    """In pages, ascending; a length between two of them may not be restorable."""
    reason: MissReason | None
    """Why not more; None when all is."""

    @property
    def pages(self) -> int:
        return self.lengths[-1] if self.lengths else 0


def look_up(
    transfers: Sequence[PoolTransfer],
    before: Sequence[str] | None,
    shelves: LinkedShelves,
    deadline: Deadline,
) -> Restorable:
    """The prefix lengths that every pool can serve; SGLang intersects them over the ranks."""
    kv = next((transfer for transfer in transfers if str(transfer.name) == KV), None)
    keys = list(kv.keys or ()) if kv is not None else []
    shelf = shelves.usable(KV)
    if isinstance(shelf, MissReason) or not keys:
        return Restorable(len(keys), (), shelf if isinstance(shelf, MissReason) else None)
    span = Span(keys, before)
    found = shelf.session.lookup(span, deadline)
    lengths = set(range(1, found.pages + 1))
    for transfer in transfers:
        if transfer is not kv and lengths:
            lengths &= restorable(_cover(transfer, span, found.pages, shelves, deadline))
    longest = max(lengths, default=0)
    reason = found.reason if longest == found.pages else MissReason.SIDE_POOL
    return Restorable(len(keys), sorted(lengths), reason)


def _cover(
    transfer: PoolTransfer, span: Span, kv_pages: int, shelves: LinkedShelves, deadline: Deadline
) -> PoolCover:
    shelf = shelves.usable(str(transfer.name))
    present: Sequence[bool] = [False] * kv_pages
    if isinstance(shelf, Shelf):  # the whole span: the KV may end inside a chunk of this pool
        present = shelf.session.contains(span, deadline)[:kv_pages]
    window = max(1, len(transfer.keys or ()))
    return PoolCover(Need.TRAILING if trailing(transfer) else Need.ALL, present, window)
