"""What an engine's device holds, followed by its events and kept until it is reported."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from sgkv.control.events import EngineCache, EngineEvent
from sgkv.control.places import Device
from sgkv.control.wire import Change

_MOST = 200_000
"""Changes between two reports; past it a full account is told instead."""


class Residency:
    """Written by the thread that listens to the engine, read by the one that reports."""

    def __init__(self, page_tokens: int, most: int = _MOST) -> None:
        self._lock = threading.Lock()
        self._cache = EngineCache(page_tokens)
        self._most = most
        self._changes: deque[tuple[bytes, bool]] = deque()
        self._lost = False

    @property
    def lost(self) -> bool:
        """There were more changes than fit: only a full account says what is there."""
        return self._lost

    def apply(self, events: Iterable[EngineEvent]) -> None:
        with self._lock:
            self._note(self._cache.apply(events))

    def forget(self) -> None:
        """Events were missed: what is there is not known."""
        with self._lock:
            self._note(self._cache.forget())

    def account(self) -> list[bytes]:
        """All pages that are there; `take` goes on from here."""
        with self._lock:
            self._changes.clear()
            self._lost = False
            return self._cache.pages

    def take(self, limit: int) -> list[tuple[bytes, bool]]:
        """The oldest changes, which are forgotten."""
        with self._lock:
            return [self._changes.popleft() for _ in range(min(limit, len(self._changes)))]

    def _note(self, changes: Iterator[tuple[bytes, bool]]) -> None:
        for change in changes:
            if len(self._changes) < self._most:
                self._changes.append(change)
            else:
                self._lost = True


def told(namespaces: Sequence[str], changes: Iterable[tuple[bytes, bool]]) -> list[Change]:
    """Changes as reports have them, for each of the namespaces that a page of the engine's is stored in."""
    runs = [(came, b"".join(page for page, _ in run)) for came, run in groupby(changes, lambda one: one[1])]
    return [
        Change(namespace, "p", Device.GPU, came, pages) for came, pages in runs for namespace in namespaces
    ]
