"""What an engine's adapter may ask of a store, whether that lives in its process or in the node's daemon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from sgkv.backends.base import BackendStats, Bound, Buffer
from sgkv.backends.cpu import Lease
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.chunk.layout import PageLayout
from sgkv.counters import Counters
from sgkv.identity import Namespace
from sgkv.reasons import MissReason
from sgkv.store.lookup import Found
from sgkv.store.span import Span
from sgkv.store.tier import Tier


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A snapshot; taking it does no I/O."""

    tiers: dict[str, BackendStats]
    counters: dict[str, int | dict[str, int]]
    write_behind_bytes: int
    """Bytes of arena pages leased for writing to lower tiers."""
    write_behind_queued: int
    bounds: dict[str, Bound] = field(default_factory=dict)
    """What the store itself holds, beside what its tiers do (`BackendStats.bounds`), and may hold."""


class PageSession(ABC):
    """Pages of one namespace in, pages out. Any thread; no call waits longer than its deadline.

    A page is a sequence of writable buffers that concatenate to `layout.page_bytes`. Buffers are
    only touched during the call.
    """

    namespace: Namespace
    layout: PageLayout
    pages_per_chunk: int

    @abstractmethod
    def lookup(self, span: Span, deadline: Deadline) -> Found:
        """How many leading pages of the span can be read now. No effect on the eviction order."""

    @abstractmethod
    def contains(self, span: Span, deadline: Deadline) -> list[bool]:
        """For each page of the span, on its own, whether it can be read now."""

    @abstractmethod
    def get(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[MissReason | None]:
        """Fill `pages`; None for each page that is filled and verified, else why it is not.

        What a page holds after a miss is undefined.
        """

    @abstractmethod
    def set(self, span: Span, pages: Sequence[Page], deadline: Deadline) -> list[bool]:
        """Store `pages`; True for each that is stored, or was already."""

    def near(self, span: Span) -> list[bool]:
        """For each page of the span whether `lease` would find it. No I/O."""
        return [False] * len(span.hashes)

    @abstractmethod
    def lease(self, span: Span) -> list[Lease | None]:
        """Pages where they lie in this process's cpu tier, counted as served; None for each that does not.

        In this session's order. No I/O. Release every lease.
        """

    @abstractmethod
    def pin(self, span: Span, pinned: bool = True) -> list[bool]:
        """Exempt the pages of a span from eviction where they are now; True where a tier did so.

        A page in a full chunk is pinned with its chunk.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget everything in this namespace, in every tier, at once; space is reclaimed later."""


class PageStore(ABC):
    """Opens sessions. Any thread."""

    counters: Counters
    tiers: tuple[Tier, ...] = ()
    """Those in this process; none where the store is in another."""

    @property
    @abstractmethod
    def shared(self) -> bool:
        """Whether other processes find what this one stores."""

    @abstractmethod
    def open(self, namespace: Namespace, layout: PageLayout, producer: str = "") -> PageSession:
        """A session for one pool of one rank. `producer` names the engine in chunk headers."""

    def holds_back(self, first_page: str | None, tokens: int) -> bool:
        """Whether the rollout loads nothing of a prompt; then `tokens` of it, which are there, are counted.

        For who asks by `contains`: lookups answer accordingly by themselves. None is a first page that is not
        known. A store in another process holds back in lookups only.
        """
        return False

    # For the same span in several sessions of this store. Here one after another; a store that reaches its
    # tiers itself asks each of them once for all.

    def lookup_each(self, sessions: Sequence[PageSession], span: Span, deadline: Deadline) -> list[Found]:
        return [session.lookup(span, deadline) for session in sessions]

    def contains_each(
        self, sessions: Sequence[PageSession], span: Span, deadline: Deadline
    ) -> list[list[bool]]:
        return [session.contains(span, deadline) for session in sessions]

    def get_each(
        self,
        sessions: Sequence[PageSession],
        span: Span,
        pages: Sequence[Sequence[Page]],
        deadline: Deadline,
    ) -> list[list[MissReason | None]]:
        """`pages` are those of each session."""
        return [session.get(span, own, deadline) for session, own in zip(sessions, pages, strict=True)]

    def set_each(
        self,
        sessions: Sequence[PageSession],
        span: Span,
        pages: Sequence[Sequence[Page]],
        deadline: Deadline,
    ) -> list[list[bool]]:
        """`pages` are those of each session."""
        return [session.set(span, own, deadline) for session, own in zip(sessions, pages, strict=True)]

    @abstractmethod
    def register_memory(self, view: Buffer, descriptor: int | None = None) -> None:
        """Say that pages will lie in this memory, which stays mapped until `close`.

        `descriptor` is of the memory file of which `view` maps the beginning, where it does.
        """

    @abstractmethod
    def flush(self, timeout: float) -> bool:
        """Wait until everything set so far is in the lower tiers, tails included."""

    @abstractmethod
    def stats(self) -> StoreStats:
        """What the store holds and has counted; cheap enough for a scheduler thread."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything within seconds. Idempotent."""
