"""Connections that are kept for the next request."""

from __future__ import annotations

import threading
import time
from typing import Generic, Protocol, TypeVar

_IDLE_SECONDS = 15.0
"""Servers close idle connections; younger than any does, a kept one is a safe bet."""


class Keepable(Protocol):
    """A connection between two requests."""

    @property
    def stale(self) -> bool:
        """Whether it has something to say that nobody asked for."""

    def close(self) -> None:
        """Be done with it."""


C = TypeVar("C", bound=Keepable)


class Kept(Generic[C]):
    """The most recently used first, so that a burst's surplus grows old and is closed. Any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[tuple[float, C]] = []
        self._closed = False

    def take(self) -> C | None:
        """One that may serve again, though it may be dead for all we know."""
        while (kept := self._pop()) is not None:
            left_at, connection = kept
            if time.monotonic() - left_at < _IDLE_SECONDS and not connection.stale:
                return connection
            connection.close()
        return None

    def give(self, connection: C) -> None:
        """Keep a connection whose last answer was read to its end."""
        now = time.monotonic()
        with self._lock:
            surplus = self._take_old(now)
            if not self._closed and len(self._idle) < self._most:
                self._idle.append((now, connection))
            else:
                surplus.append(connection)
        for one in surplus:
            one.close()

    def drop(self) -> None:
        """Close what is idle: whoever answers there is not whom it was."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def close(self) -> None:
        """Drop, and keep nothing any more."""
        with self._lock:
            self._closed = True
        self.drop()

    def _pop(self) -> tuple[float, C] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _take_old(self, now: float) -> list[C]:
        """Those at the bottom that nobody has needed for too long."""
        old: list[C] = []
        while self._idle and now - self._idle[0][0] >= _IDLE_SECONDS:
            old.append(self._idle.pop(0)[1])
        return old
