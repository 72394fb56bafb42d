"""The store: tiers in order, and the sessions that use them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakSet

from sgkv.backends.base import Bound, Buffer
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.chunk.layout import PageLayout
from sgkv.counters import Counters
from sgkv.decide.gate import Gate
from sgkv.decide.judging import Judge
from sgkv.decide.rollout import Rollout
from sgkv.identity import Namespace
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession, PageStore, StoreStats
from sgkv.store.jointly import read_each, search_each, write_each
from sgkv.store.lookup import Found
from sgkv.store.members import ChunkMembers
from sgkv.store.promotion import Promoter
from sgkv.store.session import Machinery, Session
from sgkv.store.span import Span
from sgkv.store.tier import Tier
from sgkv.store.write_behind import WriteBehind

_PROMOTION_TIMEOUT = 0.5
"""Seconds: a promotion is only an optimisation, so closing hardly waits for one."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes and times of a store; docs/configuration.md describes each."""

    chunk_tokens: int = 256
    ttl: float | None = None
    """Seconds until what is written expires."""
    write_behind_bytes: int = 1 << 30
    tail_delay: float = 2.0
    write_threads: int = 1
    drain_timeout: float = 5.0
    promotion_pages: int = 4096
    remembered_pages: int = 131_072


class Store(PageStore):
    """KV pages over an ordered list of tiers, fastest first. Any thread.

    At most one tier has an arena, and it is the first. Owns the backends: `close` closes them.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        options: StoreOptions,
        counters: Counters | None = None,
        clock: Callable[[], float] = time.time,
        gate: Gate | None = None,
        rollout: Rollout | None = None,
    ) -> None:
        """`clock` gives Unix seconds, by which pages expire; a cpu tier has its own.

        `gate` decides what of a hit is worth loading, `rollout` for which prompts; None loads all.
        """
        if not tiers:
            raise ValueError("a store needs at least one tier")
        if any(tier.arena is not None for tier in tiers[1:]):
            raise ValueError("only the first tier may be a cpu tier")
        self.counters = counters or Counters()
        self.tiers = tuple(tiers)
        self._options = options
        self._clock = clock
        self.gate = gate
        self._judge = None if gate is None else Judge(gate)
        self.rollout = rollout
        self.members: ChunkMembers | None = None
        """Told of chunks that are written from the next session on, where somebody wants to know."""
        self._lock = threading.Lock()
        self._sessions: WeakSet[Session] = WeakSet()
        self._endings: list[Callable[[], object]] = []
        arena, below = tiers[0].arena, [tier for tier in tiers if tier.arena is None]
        staged = arena is not None and bool(below)
        self._write_behind = (
            WriteBehind(
                below,
                self.counters,
                max_bytes=options.write_behind_bytes,
                tail_delay=options.tail_delay,
                threads=options.write_threads,
            )
            if staged
            else None
        )
        promotes = staged and any(tier.promote for tier in below)
        self._promoter: Promoter | None = None
        if arena is not None and promotes:
            self._promoter = Promoter(arena, self.counters, options.promotion_pages)
        if arena is not None:
            self._register(arena.memory, below)

    def open(self, namespace: Namespace, layout: PageLayout, producer: str = "") -> Session:
        """A session for one pool of one rank. `producer` names the engine in chunk headers."""
        shared = Machinery(
            self.tiers,
            self.counters,
            self._options.chunk_tokens,
            self._options.ttl,
            self._write_behind,
            self._promoter,
            self._clock,
            self._options.remembered_pages,
            self.gate,
            self._judge,
            self.rollout,
            self.members,
        )
        session = Session(shared, namespace, layout, producer)
        with self._lock:
            self._sessions.add(session)
        return session

    def holds_back(self, first_page: str | None, tokens: int) -> bool:
        if self.rollout is None or self.rollout.lets(first_page):
            return False
        self.counters.add("held_back_tokens", tokens)
        return True

    def lookup_each(self, sessions: Sequence[PageSession], span: Span, deadline: Deadline) -> list[Found]:
        """What is worth loading is decided once, for the pages of all: by the session that has the fewest."""
        own = _own(sessions)
        searches = search_each(own, span, deadline)
        found = [search.found for search in searches]
        least = min(range(len(own)), key=lambda at: found[at].pages)
        found[least] = own[least].worthwhile(searches[least], sum(one.layout.page_bytes for one in own))
        return found

    def contains_each(
        self, sessions: Sequence[PageSession], span: Span, deadline: Deadline
    ) -> list[list[bool]]:
        return [search.available for search in search_each(_own(sessions), span, deadline)]

    def get_each(
        self,
        sessions: Sequence[PageSession],
        span: Span,
        pages: Sequence[Sequence[Page]],
        deadline: Deadline,
    ) -> list[list[MissReason | None]]:
        return [reading.reasons for reading in read_each(_own(sessions), span, pages, deadline)]

    def set_each(
        self,
        sessions: Sequence[PageSession],
        span: Span,
        pages: Sequence[Sequence[Page]],
        deadline: Deadline,
    ) -> list[list[bool]]:
        return write_each(_own(sessions), span, pages, deadline)

    @property
    def sessions(self) -> list[Session]:
        """Those in use."""
        with self._lock:
            return list(self._sessions)

    def before_closing(self, end: Callable[[], object]) -> None:
        """Have `close` call this first."""
        self._endings.append(end)

    @property
    def shared(self) -> bool:
        return any(tier.backend.capabilities.shared for tier in self.tiers)

    @property
    def chunk_tokens(self) -> int:
        return self._options.chunk_tokens

    def register_memory(self, view: Buffer, descriptor: int | None = None) -> None:
        """Tell the tiers that pages will be set from this memory, which stays mapped until `close`."""
        if self.tiers[0].arena is None:
            self._register(view, self.tiers)

    def _register(self, view: Buffer, tiers: Sequence[Tier]) -> None:
        for tier in tiers:
            tier.backend.register_memory(view)

    def flush(self, timeout: float) -> bool:
        """Wait until everything set so far is in the lower tiers, tails included."""
        written = self._write_behind is None or self._write_behind.flush(timeout)
        return written and (self._promoter is None or self._promoter.flush(timeout))

    def stats(self) -> StoreStats:
        behind = self._write_behind
        return StoreStats(
            {tier.name: tier.backend.stats() for tier in self.tiers},
            self.counters.snapshot(),
            behind.leased_bytes if behind else 0,
            behind.queued if behind else 0,
            self._bounds(),
        )

    def _bounds(self) -> dict[str, Bound]:
        bounds = self._write_behind.bounds() if self._write_behind else {}
        if self._promoter is not None:
            bounds |= self._promoter.bounds()
        with self._lock:
            memos = [session.remembered for session in self._sessions]
        bounds["memo_pages"] = Bound(sum(memo.used for memo in memos), sum(memo.limit for memo in memos))
        return bounds

    def close(self) -> None:
        """Drain write-behind for at most `drain_timeout` seconds, then close every tier. Idempotent.

        A tier that hangs adds two seconds and no more.
        """
        while self._endings:
            self._endings.pop()()
        if self._write_behind is not None:
            self._write_behind.close(self._options.drain_timeout)
        if self._promoter is not None:
            self._promoter.close(_PROMOTION_TIMEOUT)
        for tier in self.tiers:
            tier.backend.close()


def _own(sessions: Sequence[PageSession]) -> list[Session]:
    own = [session for session in sessions if isinstance(session, Session)]
    assert len(own) == len(sessions), "sessions of another store"
    return own
