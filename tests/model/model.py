"""What a store may answer, as a dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.model.world import content

TTL = 100


@dataclass(slots=True)
class Entry:
    """One page that was set."""

    served_until: float
    """Nobody may be served it later: it was last set `TTL` before."""
    promised_until: float
    """It must not be gone sooner by itself. A page set again while it is there keeps its first expiry."""


@dataclass(slots=True)
class Model:
    """Pages by hash, since the last clear; what may have been lost is not forgotten, only not promised."""

    now: float = 1_000_000.0
    generation: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)
    """Pages that eviction must leave in the store that is looked at."""

    def set(self, hashes: Iterable[str]) -> None:
        for page_hash in hashes:
            old = self.entries.get(page_hash)
            until = self.now + TTL
            self.entries[page_hash] = Entry(until, until if old is None else old.promised_until)

    def clear(self) -> None:
        self.generation += 1
        self.entries.clear()
        self.pinned.clear()

    def refusal(self, page_hash: str, data: bytes) -> str | None:
        """Why this page must not have been served, or None."""
        entry = self.entries.get(page_hash)
        if entry is None:
            return "it was never set, or cleared"
        if entry.served_until <= self.now:
            return "it is expired"
        return None if data == content(page_hash, self.generation) else "it holds other bytes"

    def promised(self, page_hash: str) -> bool:
        entry = self.entries.get(page_hash)
        return entry is not None and entry.promised_until > self.now
