"""One namespace of a store, as one pool of one rank sees it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sgkv.backends import failpoints
from sgkv.backends.base import Bound, PutItem, Status
from sgkv.backends.cpu import CpuBackend, Lease
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import BlobIdentity, Page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.counters import Counters
from sgkv.decide.gate import Gate, Mode
from sgkv.decide.judging import Judge
from sgkv.decide.rollout import Rollout
from sgkv.identity import Namespace
from sgkv.keys import chunk_keys, page_keys
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession
from sgkv.store.jointly import read_each, search_each, write_each
from sgkv.store.lending import Lent, Rooms, lend
from sgkv.store.lookup import Found, Search
from sgkv.store.members import ChunkMembers
from sgkv.store.memo import ChunkMemo
from sgkv.store.promotion import Promoter
from sgkv.store.reading import Reading
from sgkv.store.span import Span
from sgkv.store.tier import Tier
from sgkv.store.together import Steps
from sgkv.store.write_behind import WriteBehind
from sgkv.store.writing import DirectWrite, Writing

logger = logging.getLogger("sgkv")

_DISCARD_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Machinery:
    """What all sessions of a store share."""

    tiers: Sequence[Tier]
    counters: Counters
    chunk_tokens: int
    ttl: float | None
    write_behind: WriteBehind | None
    """None without an arena tier, or without a tier below it."""
    promoter: Promoter | None
    clock: Callable[[], float]
    """Unix seconds, for expiry."""
    remembered_pages: int
    gate: Gate | None = None
    """None loads whatever is there."""
    judge: Judge | None = None
    """Of the gate's decisions; None without a gate."""
    rollout: Rollout | None = None
    """None holds nothing back."""
    members: ChunkMembers | None = None
    """None if nobody wants to know which pages a chunk has."""

    @property
    def arena(self) -> Tier | None:
        return next((tier for tier in self.tiers if tier.arena is not None), None)

    @property
    def below(self) -> Sequence[Tier]:
        return [tier for tier in self.tiers if tier.arena is None]


class Session(PageSession):
    """Over the tiers of a store in this process. No call waits longer than their deadlines."""

    def __init__(self, machinery: Machinery, namespace: Namespace, layout: PageLayout, producer: str) -> None:
        self.namespace = namespace
        self.layout = layout
        self._shared = machinery
        self._memo = ChunkMemo(machinery.remembered_pages // 2)
        self._clearing = threading.Lock()
        self._uncleared: frozenset[str] = frozenset()
        """Tiers that may still hold what was cleared: nothing is read from them."""
        self._identity = BlobIdentity(namespace.digest, layout, producer, machinery.clock)
        # Arena pages have no header that could tell their byte order: each order is its own.
        self._arena_namespace = f"{namespace.digest}.{layout.order.value}"
        opaque = layout.order is Order.OPAQUE  # recurrent state: one page is one object
        self.pages_per_chunk = 1 if opaque else max(1, machinery.chunk_tokens // layout.tokens)
        self._writing = Writing(
            self._identity, self._arena_namespace, self.pages_per_chunk, machinery.counters
        )

    @property
    def arena_group(self) -> str:
        """What all keys of this session in the cpu tier begin with, up to the first slash."""
        return self._arena_namespace

    @property
    def remembered(self) -> Bound:
        """Pages whose chunk is remembered for the reads that follow a lookup."""
        return self._memo.pages

    @property
    def counters(self) -> Counters:
        return self._shared.counters

    @property
    def arena(self) -> Tier | None:
        """The cpu tier."""
        return self._shared.arena

    def lookup(self, span: Span, deadline: Deadline) -> Found:
        """How many leading pages of the span can be read now. No effect on the eviction order.

        Tiers answer within `deadline`, and none is asked once that is over or it has not answered.
        """
        return self.worthwhile(search_each([self], span, deadline)[0], self.layout.page_bytes)

    def worthwhile(self, search: Search, page_bytes: int) -> Found:
        """The answer of a search, no longer than what is worth loading of pages of `page_bytes`."""
        found = self._gated(search, page_bytes)
        rollout, span = self._shared.rollout, search.span
        if rollout is None or not found.pages or rollout.lets(span.sequence):
            return found
        self.counters.add("held_back_tokens", found.pages * self.namespace.prompt_tokens)
        return Found(0, MissReason.HELD_BACK)

    def _gated(self, search: Search, page_bytes: int) -> Found:
        gate, found = self._shared.gate, search.found
        if gate is None or not found.pages:
            return found
        before = search.span.start * self.layout.tokens
        decision = gate.decide(search.reaches, page_bytes, self.layout.tokens, before)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("gate, prompt %s: %s", search.span.sequence[:12], decision.explain())
        declined = found.pages - min(found.pages, decision.pages)
        self.counters.add("gate_pages", found.pages - declined, label="decision", value="load")
        self.counters.add("gate_pages", declined, label="decision", value="compute")
        if self._shared.judge is not None:
            self._shared.judge.expect(search.span.sequence, search.span.start, decision)
        if gate.mode is not Mode.ON or not declined:
            return found
        return Found(decision.pages, MissReason.NOT_WORTH_LOADING)

    def contains(self, span: Span, deadline: Deadline) -> list[bool]:
        """For each page of the span, on its own, whether it can be read now."""
        return search_each([self], span, deadline)[0].available

    def get(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[MissReason | None]:
        """Fill `pages`; None for each page that is filled and verified, else why it is not.

        What a page holds after a miss is undefined.
        """
        return self.read(span, pages, deadline).reasons

    def read(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> Reading:
        """`get`, and which tiers served it."""
        return read_each([self], span, [pages], deadline)[0]

    def note(
        self,
        served_by: Mapping[str, int],
        page_bytes: int,
        reasons: Sequence[MissReason | None],
        seconds: float,
    ) -> None:
        """Count a read of pages of `page_bytes`, and let the rollout judge it."""
        self.counters.read(served_by, page_bytes, self.namespace.prompt_tokens, reasons)
        rollout = self._shared.rollout
        if rollout is not None and rollout.note(seconds, reasons):
            self.counters.add("rollout_pauses")

    def judge(
        self, span: Span, page_bytes: int, reasons: Sequence[MissReason | None], seconds: float
    ) -> None:
        """Count whether the gate was right about pages of `page_bytes` that were read."""
        judge = self._shared.judge
        if judge is None or any(reasons):
            return
        pages, tokens = len(span.hashes), self.layout.tokens
        verdict = judge.verdict(span.sequence, span.start, pages, page_bytes, tokens, seconds)
        if verdict is not None:
            self.counters.add("gate_judged_pages", pages, label="verdict", value=verdict.value)

    def set(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool]:
        """Store `pages`; True for each that is stored, or was already."""
        return write_each([self], span, [pages], deadline)[0]

    def search(self, span: Span) -> Search:
        """A lookup that has not begun."""
        return Search(
            span,
            self._identity.namespace,
            self._arena_namespace,
            self.pages_per_chunk,
            self._memo,
            [False] * len(span.hashes),
        )

    def reading(self, span: Span, pages: Sequence[Page]) -> Reading:
        """A read that has not begun."""
        return Reading(span, pages, self._identity, self._arena_namespace, self.pages_per_chunk, self._memo)

    def through_arena(
        self, arena: Tier, span: Span, pages: Sequence[Page]
    ) -> Steps[PutItem, Status, list[bool]]:
        """A write into the cpu tier that has not begun."""
        behind = self._shared.write_behind
        return self._writing.through_arena(arena, behind, span, pages, self._expiry())

    def direct(self, span: Span, pages: Sequence[Page]) -> DirectWrite:
        """A write past the cpu tier that has not begun."""
        return self._writing.direct(span, pages, self._expiry())

    def note_members(self, span: Span) -> None:
        """Tell who wants to know of the chunks that a write completes."""
        members = self._shared.members
        if members is not None and span.before is not None:
            for chunk in span.chunks(self.pages_per_chunk):
                members.note(span.chunk_hashes(chunk))

    def promote(self, reading: Reading) -> None:
        """Have what was read from below the cpu tier copied into it."""
        promoter = self._shared.promoter
        if promoter is not None and reading.promotable:
            promoter.submit([(t, read) for t, read in reading.promotable if t.promote], self._arena_namespace)

    def reserve(self, span: Span) -> Rooms:
        """Room in the cpu tier for pages that another process writes. Raises ValueError without that tier."""
        shared, (tier, arena) = self._shared, self._require_arena()
        self.retry_clearing()
        self.note_members(span)
        expires_at = self._expiry()
        rooms = self._writing.reserve(arena, span, expires_at)
        return Rooms(self._writing, tier, shared.write_behind, span, expires_at, rooms)

    def no_rooms(self, span: Span) -> Rooms:
        """What `reserve` gives where nothing may be written: no page of it is ever stored."""
        tier, _ = self._require_arena()
        full = [Status.FULL] * len(span.hashes)
        return Rooms(self._writing, tier, None, span, 0, full)

    def lend(self, span: Span, deadline: Deadline) -> Lent:
        """The pages in the cpu tier, for another process to read where they lie; see `lending.lend`.

        Raises ValueError without that tier.
        """
        tier, arena = self._require_arena()
        tiers, began = self.cleared_tiers, time.perf_counter()
        reading = self.reading(span, [[] for _ in span.hashes])
        if tier not in tiers:  # not cleared yet: nothing may be read from it
            lent = Lent([None] * len(span.hashes), [MissReason.ABSENT] * len(span.hashes), {})
        else:
            below = [lower for lower in tiers if lower.arena is None]
            lent = lend(reading, self.search(span), tier, arena, below, deadline)
        self.note(lent.served_by, self.layout.page_bytes, lent.reasons, time.perf_counter() - began)
        return lent

    def near(self, span: Span) -> list[bool]:
        arena = self._arena()
        keys = page_keys(self._arena_namespace, span.hashes)
        return [False] * len(keys) if arena is None else arena.backend.contains(keys)

    def lease(self, span: Span) -> list[Lease | None]:
        """Pages where they lie in the cpu tier, so that they need not be copied twice; counted as served.

        In this session's order; None for each page that is not there. No I/O. Release every lease.
        """
        arena = self._arena()
        if arena is None or arena.arena is None:
            return [None] * len(span.hashes)
        leases = arena.arena.lease(page_keys(self._arena_namespace, span.hashes))
        found = sum(lease is not None for lease in leases)
        self.counters.hits(arena.name, found, self.layout.page_bytes, self.namespace.prompt_tokens)
        return leases

    def pin(self, span: Span, pinned: bool = True) -> list[bool]:
        """Exempt the pages of a span from eviction where they are now; True where a tier did so.

        A page in a full chunk is pinned with its chunk.
        """
        done = [False] * len(span.hashes)
        for tier in self._shared.tiers:
            flags = tier.backend.pin(page_keys(self._namespace_in(tier), span.hashes), pinned)
            done = [before or flag for before, flag in zip(done, flags, strict=True)]
            if tier.arena is None:
                self._pin_chunks(tier, span, pinned, done)
        return done

    def clear(self) -> None:
        """Forget everything in this namespace, in every tier, at once; space is reclaimed later.

        A tier that cannot be cleared now (it hangs, fails, or is still being written to) is not read
        from until it could be; each `set` tries again.
        """
        with self._clearing:
            self._uncleared = frozenset(tier.name for tier in self._shared.tiers)
        self._memo.forget()
        failpoints.passing("clear.begun")
        self._clear(_DISCARD_TIMEOUT)
        if self._uncleared:
            logger.warning("sgkv: %s cannot be cleared now and is left alone", ", ".join(self._uncleared))

    def retry_clearing(self) -> None:
        """Clear what could not be cleared before, where that takes no time."""
        if self._uncleared:
            self._clear(0.0)

    def _clear(self, timeout: float) -> None:
        """Clear the tiers that are not; what a later `clear` asks for is its own to note as done."""
        asked = self._uncleared
        behind, promoter = self._shared.write_behind, self._shared.promoter
        written = behind is None or behind.discard(self._identity.namespace, timeout)
        promoted = promoter is None or promoter.discard(self._arena_namespace, timeout)
        left = []
        for tier in self._shared.tiers:
            settled = promoted if tier.arena else written
            if tier.name in asked and not (
                tier.backend.delete_prefix(f"{self._namespace_in(tier)}/") and settled
            ):
                left.append(tier.name)
            failpoints.passing("clear.tier")
        with self._clearing:
            if self._uncleared is asked:
                self._uncleared = frozenset(left)

    def _namespace_in(self, tier: Tier) -> str:
        return self._arena_namespace if tier.arena else self._identity.namespace

    def _arena(self) -> Tier | None:
        """The cpu tier, unless it waits to be cleared."""
        return next((tier for tier in self.cleared_tiers if tier.arena is not None), None)

    @property
    def cleared_tiers(self) -> Sequence[Tier]:
        """Those that may be read from."""
        tiers = self._shared.tiers
        return [tier for tier in tiers if tier.name not in self._uncleared] if self._uncleared else tiers

    def _require_arena(self) -> tuple[Tier, CpuBackend]:
        tier = self._shared.arena
        if tier is None or tier.arena is None:
            raise ValueError("pages can only be lent by a store with a cpu tier")
        return tier, tier.arena

    def _expiry(self) -> int:
        shared = self._shared
        return int(shared.clock() + shared.ttl) if shared.ttl else 0

    def _pin_chunks(self, tier: Tier, span: Span, pinned: bool, done: list[bool]) -> None:
        chunks = list(span.chunks(self.pages_per_chunk))
        keys = chunk_keys(self._identity.namespace, [chunk.last_hash for chunk in chunks])
        for chunk, flag in zip(chunks, tier.backend.pin(keys, pinned), strict=True):
            if flag:
                done[chunk.first : chunk.stop] = [True] * (chunk.stop - chunk.first)
