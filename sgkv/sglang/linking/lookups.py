"""Which prefixes could be loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
class Restorable:
    """The answer to a lookup."""

    asked: int
    """Pages of KV."""
    lengths: Sequence[int]
    """In pages, ascending; a length between two of them may not be restorable."""
    reason: MissReason | None
    """Why not more; None when all is."""
    wanted: Sequence[Wanted] = ()
    """What a load of the longest takes: side pools first, without which the KV is no use."""

    @property
    def pages(self) -> int:
        return self.lengths[-1] if self.lengths else 0


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup for one request."""

    transfers: Sequence[PoolTransfer]
    before: Sequence[str] | None
    """The hashes before those that are asked for."""
    shelves: LinkedShelves
    early: Early | None
    """What was read ahead for the request: pages that could not be read are not offered again."""
    deadline: Deadline

    def answer(self) -> Restorable:
        """The prefix lengths that every pool can serve; SGLang intersects them over the ranks."""
        keys = kv_keys(self.transfers)
        shelf = self.shelves.usable(KV)
        if isinstance(shelf, MissReason) or not keys:
            return Restorable(len(keys), (), shelf if isinstance(shelf, MissReason) else None)
        span = Span(keys, self.before)
        pages, reason = self._leading(shelf.session, span)
        sides = [transfer for transfer in self.transfers if str(transfer.name) != KV] if pages else []
        lengths = set(range(1, pages + 1))
        for side in sides:
            lengths &= restorable(self._cover(side, span, pages))
        longest = max(lengths, default=0)
        wanted = [wanted for side in sides for wanted in self._window(side, span, longest)]
        wanted.append((shelf.session, span.part(0, longest)))
        reason = reason if longest == pages else MissReason.SIDE_POOL
        return Restorable(len(keys), sorted(lengths), reason, wanted)

    def _leading(self, session: PageSession, span: Span) -> tuple[int, MissReason | None]:
        found, unreadable = session.lookup(span, self.deadline), self._unreadable(session)
        pages = leading([page_hash not in unreadable for page_hash in span.hashes[: found.pages]])
        return pages, unreadable[span.hashes[pages]] if pages < found.pages else found.reason

    def _cover(self, side: PoolTransfer, span: Span, kv_pages: int) -> PoolCover:
        shelf = self.shelves.usable(str(side.name))
        present: Sequence[bool] = [False] * kv_pages
        if isinstance(shelf, Shelf):  # the whole span: the KV may end inside a chunk of this pool
            unreadable = self._unreadable(shelf.session)
            flags = shelf.session.contains(span, self.deadline)[:kv_pages]
            present = [
                flag and page_hash not in unreadable
                for flag, page_hash in zip(flags, span.hashes, strict=False)
            ]
        return PoolCover(Need.TRAILING if trailing(side) else Need.ALL, present, _pages(side))

    def _window(self, side: PoolTransfer, span: Span, length: int) -> list[Wanted]:
        """What a prefix of `length` takes of a side pool."""
        shelf = self.shelves.usable(str(side.name))
        first = max(0, length - _pages(side)) if trailing(side) else 0
        return [(shelf.session, span.part(first, length))] if isinstance(shelf, Shelf) else []

    def _unreadable(self, session: PageSession) -> Mapping[str, MissReason]:
        return self.early.failed(session) if self.early is not None else {}


def _pages(side: PoolTransfer) -> int:
    """How many of the last pages a prefix needs."""
    return max(1, len(side.keys or ()))
