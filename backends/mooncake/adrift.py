"""Blobs whose session with the pool could not be ended, because a node or the master hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

_SECONDS = 10.0
"""The master's default `client_ttl`: a node that hangs longer has lost its memory anyway."""
_MOST = 4096


class Adrift:
    """Keys that stay as they are for a while: of a transfer that failed the memory may still be written to.

    The library has a session for each, so none can be begun anew before that was ended. Any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}

    def add(self, keys: Iterable[str]) -> None:
        now = self._clock()
        with self._lock:
            self._since |= dict.fromkeys(keys, now)

    def __contains__(self, key: object) -> bool:
        return key in self._since

    def settled(self) -> list[str]:
        """Take out the keys whose session may be ended now: the old ones, and the oldest of too many."""
        if not self._since:
            return []
        until = self._clock() - _SECONDS
        with self._lock:
            surplus = len(self._since) - _MOST
            due = [
                key for at, (key, since) in enumerate(self._since.items()) if since <= until or at < surplus
            ]
            for key in due:
                del self._since[key]
        return due
