"""What SGLang asks for, as pages of our pools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolTransfer

from sgkv.reasons import MissReason
from sgkv.sglang.linking.pools import KV, LinkedPool
from sgkv.sglang.shelves import Shelf, Shelves
from sgkv.store.base import PageSession
from sgkv.store.span import Span, runs

LinkedShelves = Shelves[LinkedPool]


@dataclass(frozen=True, slots=True)
class PageMove:
    """Pages of one pool, where they lie in the sequence and where on the device."""

    pool: LinkedPool
    session: PageSession
    span: Span
    slots: torch.Tensor
    """int64, `pool.page_size` a page, on the pool's device or in host memory."""

    def part(self, first: int, stop: int) -> PageMove:
        """Pages `first` to `stop`."""
        size = self.pool.page_size
        slots = self.slots[first * size : stop * size]
        return PageMove(self.pool, self.session, self.span.part(first, stop), slots)

    def parts(self, pages: Sequence[int]) -> list[PageMove]:
        """The ascending `pages`, neighbours together."""
        return [self.part(run.start, run.stop) for run in runs(pages)]


def moves(
    transfers: Iterable[PoolTransfer], before: Sequence[str] | None, shelves: LinkedShelves
) -> list[PageMove] | MissReason:
    """`transfers` of one request or node, KV first; `before` are the hashes before those of KV.

    Why they cannot be served if they cannot: then none of them can. Raises ValueError where a transfer
    has not exactly the slots of its pages.
    """
    found, chain = [], kv_keys(transfers)
    for transfer in transfers:
        shelf = shelves.usable(str(transfer.name))
        if isinstance(shelf, MissReason):
            return shelf
        if transfer.keys:
            found.append(_move(transfer, shelf, span_of(transfer, chain, before)))
    return found


def span_of(transfer: PoolTransfer, chain: Sequence[str], before: Sequence[str] | None) -> Span:
    """Where the pages of `transfer` lie: side pools have only the last of those in `chain`."""
    keys = list(transfer.keys or ())
    if list(chain[len(chain) - len(keys) :]) != keys:
        return Span(keys, None)
    return Span(chain, before).part(len(chain) - len(keys), len(chain))


def trailing(transfer: PoolTransfer) -> bool:
    """Whether a prefix needs only the last pages of this pool: windows and recurrent state."""
    return transfer.hit_policy is PoolHitPolicy.TRAILING_PAGES


def kv_keys(transfers: Iterable[PoolTransfer]) -> list[str]:
    """Hashes of the pages of KV."""
    return next((list(transfer.keys or ()) for transfer in transfers if str(transfer.name) == KV), [])


def _move(transfer: PoolTransfer, shelf: Shelf[LinkedPool], span: Span) -> PageMove:
    slots = transfer.device_indices
    wanted = len(span.hashes) * shelf.pool.page_size
    if slots is None or slots.numel() != wanted:
        raise ValueError(f"pool {shelf.pool.name}: {wanted} slots were expected with these pages")
    return PageMove(shelf.pool, shelf.session, span, slots.to(torch.int64).flatten().contiguous())
