"""The engine in whose process a store is: what its device holds, as the agent reports it."""

from __future__ import annotations

from collections.abc import Iterator

from sgkv.config.control import EngineEvents
from sgkv.control.listening import Listener
from sgkv.control.residency import Residency, told
from sgkv.control.wire import Change
from sgkv.store.session import Session
from sgkv.store.store import Store

_KV = "kv"


class Engine:
    """Of the agent's thread alone."""

    def __init__(self, store: Store, events: EngineEvents) -> None:
        self._store = store
        self._events = events
        self._residency: Residency | None = None
        self._listener: Listener | None = None

    @property
    def lost(self) -> bool:
        """Only a full account says what is there."""
        return self._residency is not None and self._residency.lost

    def account(self, limit: int) -> Iterator[list[Change]]:
        """All pages on the device, up to `limit` hashes at a time."""
        pages = [] if self._residency is None else self._residency.account()
        some = max(1, limit // max(1, len(self._namespaces)))
        for start in range(0, len(pages), some):
            yield told(self._namespaces, ((page, True) for page in pages[start : start + some]))

    def take(self, limit: int) -> list[Change]:
        """What changed since, up to `limit` hashes."""
        if self._residency is None:
            self._listen()
            return []
        namespaces = self._namespaces
        return told(namespaces, self._residency.take(max(0, limit) // max(1, len(namespaces))))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    @property
    def _sessions(self) -> list[Session]:
        return [session for session in self._store.sessions if session.namespace.pool == _KV]

    @property
    def _namespaces(self) -> list[str]:
        return [session.namespace.digest for session in self._sessions]

    def _listen(self) -> None:
        """Begin as soon as it is known how many tokens a page has."""
        sessions = self._sessions
        if sessions:
            self._residency = Residency(sessions[0].namespace.page_tokens)
            self._listener = Listener(self._events, self._residency, self._store.counters)
