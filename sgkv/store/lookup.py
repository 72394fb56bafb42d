"""How much of a chain a set of tiers can serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.keys import chunk_keys, page_keys
from sgkv.reasons import DOWN, MissReason, reason_of
from sgkv.store.memo import ChunkMemo
from sgkv.store.pools import leading
from sgkv.store.span import ChunkSlice, Span
from sgkv.store.tier import Tier

_FANOUT = 16
_MAX_BRIDGES = 4
"""Chunks of a remote tier that may be missing but present as pages before the search stops."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a lookup."""

    pages: int
    """Leading pages of the span that can be read now."""
    reason: MissReason | None
    """Why the next page cannot; None when all can."""


@dataclass(slots=True)
class Search:
    """One lookup under way: which pages of the span some tier has."""

    span: Span
    namespace: str
    arena_namespace: str
    pages_per_chunk: int
    memo: ChunkMemo
    available: list[bool]
    deadline: Deadline
    reason: MissReason = MissReason.ABSENT
    down: bool = False
    """The tier being asked has not answered, and is not asked again in this lookup."""

    def over(self, tiers: Sequence[Tier]) -> Found:
        """Ask the tiers in order until one of them completes the span, or the time is up."""
        for tier in tiers:
            self.down = False
            if self.deadline.over:
                self.reason = MissReason.TIMEOUT
                break
            if tier.arena is not None:
                self._ask_arena(tier)
            elif tier.backend.capabilities.local_index:
                self._ask_index(tier)
            else:
                self._ask_remote(tier)
            if all(self.available):
                return Found(len(self.available), None)
        return Found(leading(self.available), self.reason)

    def _probe(self, tier: Tier, keys: Sequence[str]) -> list[bool]:
        if not keys or self.down:
            return [False] * len(keys)
        flags, status = tier.backend.probe(keys, self.deadline)
        if status is not Status.OK:
            self.reason = reason_of(status)
            self.down = status in DOWN
        return flags

    def _ask_arena(self, tier: Tier) -> None:
        flags = self._probe(tier, page_keys(self.arena_namespace, self.span.hashes))
        self._add_pages(range(len(flags)), flags)

    def _ask_index(self, tier: Tier) -> None:
        """A local index answers for every chunk, and for every page outside a present one."""
        wanted = [c for c in self.span.chunks(self.pages_per_chunk) if self._misses(c)]
        flags = self._probe(tier, chunk_keys(self.namespace, [c.last_hash for c in wanted]))
        for chunk in compress(wanted, flags):
            self._add_chunk(chunk)
        missing = [page for page, has in enumerate(self.available) if not has]
        self._ask_pages(tier, missing)

    def _ask_remote(self, tier: Tier) -> None:
        """A remote tier is searched for its leading run, bridging chunks that exist as pages."""
        wanted = [c for c in self.span.chunks(self.pages_per_chunk) if self._misses(c)]
        keys = chunk_keys(self.namespace, [c.last_hash for c in wanted])
        for _ in range(_MAX_BRIDGES):
            run = leading_run(lambda some: self._probe(tier, some), keys)
            for chunk in wanted[:run]:
                self._add_chunk(chunk)
            wanted, keys = wanted[run:], keys[run:]
            first = leading(self.available)
            stop = wanted[0].stop if wanted else len(self.available)
            self._ask_pages(tier, [p for p in range(first, stop) if not self.available[p]])
            if not wanted or not all(self.available[:stop]):
                return
            wanted, keys = wanted[1:], keys[1:]

    def _ask_pages(self, tier: Tier, pages: Sequence[int]) -> None:
        hashes = [self.span.hashes[page] for page in pages]
        self._add_pages(pages, self._probe(tier, page_keys(self.namespace, hashes)))

    def _misses(self, chunk: ChunkSlice) -> bool:
        return not all(self.available[chunk.first : chunk.stop])

    def _add_pages(self, pages: Sequence[int], flags: Sequence[bool]) -> None:
        for page in compress(pages, flags):
            self.available[page] = True

    def _add_chunk(self, chunk: ChunkSlice) -> None:
        self.available[chunk.first : chunk.stop] = [True] * (chunk.stop - chunk.first)
        self.memo.remember(self.span.chunk_hashes(chunk))


def leading_run(probe: Callable[[Sequence[str]], list[bool]], keys: Sequence[str]) -> int:
    """How many leading keys are present, given that a chain is stored parent first.

    Galloping, then a search with a fan-out: every round is one batched call, and 400 keys take at
    most three. Where the chain has holes the answer may be too long; the read then reports it.
    """
    present, absent = 0, len(keys)
    round_ = sorted({min(2**power - 1, len(keys) - 1) for power in range(len(keys).bit_length() + 1)})
    while present < absent:
        flags = probe([keys[index] for index in round_])
        for index, flag in zip(round_, flags, strict=True):
            if not flag:
                absent = index
                break
            present = index + 1
        step = max(1, -(-(absent - present) // _FANOUT))
        round_ = list(range(present + step - 1, absent, step)) or [present]
    return present
