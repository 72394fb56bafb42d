"""What all connections of a daemon share: the store, its memory, the rules."""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sgkv.backends.base import Buffer
from sgkv.backends.cpu import CpuBackend
from sgkv.chunk.layout import PageLayout
from sgkv.identity import Namespace
from sgkv.node.access import Access, DeniedError
from sgkv.node.memory import Region, map_region, populate_later
from sgkv.node.quotas import Quotas
from sgkv.node.turns import Turns
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store

_MOST_PLANES = 4096
_STAT_BLOCK = 512
"""Unit of `st_blocks` (stat(3type))."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a running daemon can be told anew."""

    access: Access = field(default_factory=Access)
    namespace_quota: int | None = None
    """Bytes of the cpu tier."""
    connections: int = 256


class Service:
    """One a daemon. Any thread."""

    def __init__(self, store: Store, rules: Rules, turns: Turns) -> None:
        """Raises ValueError for a store whose cpu tier cannot be mapped by engines, or that has none."""
        arena = store.tiers[0].arena
        if arena is None or arena.descriptor is None:
            raise ValueError(
                "a node's daemon needs a cpu tier before all others, for its memory is what engines map: "
                'begin tiers with {"type": "cpu"}'
            )
        self.store = store
        self.arena: CpuBackend = arena
        self.descriptor: int = arena.descriptor
        self.rules = rules
        """Replaced as a whole, so that nobody sees half of a change."""
        self.turns = turns
        self.quotas = Quotas(arena)
        self.instance = uuid.uuid4().hex
        self.leaving = False
        """Shutting down: nothing new is begun."""
        self._lock = threading.Lock()
        self._sessions: WeakValueDictionary[tuple[str, PageLayout, str], Session] = WeakValueDictionary()
        self._files: WeakValueDictionary[tuple[int, int, int], _Mapped] = WeakValueDictionary()

    def session(self, namespace: Namespace, layout: PageLayout, producer: str) -> Session:
        """The session of a namespace, one for all engines that use it. Raises DeniedError."""
        if namespace.chunk_tokens != self.store.chunk_tokens:
            raise DeniedError(
                f"the engine's chunks are of {namespace.chunk_tokens} tokens, the daemon's of "
                f"{self.store.chunk_tokens}: give both the same chunk_tokens"
            )
        if layout.page_bytes > len(self.arena.memory) or len(layout.rows) > _MOST_PLANES:
            raise DeniedError(
                f"a page of {layout.page_bytes} bytes in {len(layout.rows)} planes is too large"
            )
        key = (namespace.digest, layout, producer)
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = self.store.open(namespace, layout, producer)
        self.quotas.note(session)
        return session

    def region(self, descriptor: int, address: int, size: int, *, trusted: bool) -> tuple[Region, object]:
        """An engine's memory, mapped once for all of its connections, and what keeps it mapped.

        Raises WireError for memory that cannot be mapped.
        """
        file = os.fstat(descriptor)
        key = (file.st_dev, file.st_ino, size)
        with self._lock:
            mapped = self._files.get(key)
            if mapped is None:
                mapped = _Mapped(map_region(descriptor, address, size, trusted=trusted).view)
                self._files[key] = mapped
                if file.st_blocks * _STAT_BLOCK >= size:  # else it would be we who give it its memory
                    populate_later(mapped.view)
        return Region(address, mapped.view), mapped

    def has_room(self, session: Session, span: Span) -> bool:
        """Whether a write is within the quotas; what is not is counted."""
        fits = self.quotas.make_room(session, span, self.rules.access, self.rules.namespace_quota)
        if not fits:
            self.store.counters.add("over_quota_pages", len(span.hashes))
        return fits

    def trim(self, session: Session) -> None:
        """After a read, which may have loaded pages: keep to the quotas."""
        self.quotas.trim(session, self.rules.access, self.rules.namespace_quota)


class _Mapped:
    """A mapping that is kept while some connection uses it; memoryviews cannot be referred to weakly."""

    def __init__(self, view: Buffer) -> None:
        self.view = view
