"""Blobs whose node does not deliver: the master names them until it has given the node up."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

_SECONDS = 10.0
"""The master's default `client_ttl`, after which it drops a dead node with all its blobs."""
_MOST = 65_536


class Unreachable:
    """Remembers keys for a while; the oldest make room for new ones. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: OrderedDict[str, float] = OrderedDict()

    def add(self, keys: Iterable[str]) -> None:
        until = self._clock() + _SECONDS
        with self._lock:
            for key in keys:
                self._until.pop(key, None)
                self._until[key] = until
            while len(self._until) > _MOST:
                self._until.popitem(last=False)

    def discard(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._until.pop(key, None)

    def __contains__(self, key: object) -> bool:
        if not self._until:
            return False
        with self._lock:
            until = self._until.get(key) if isinstance(key, str) else None
        return until is not None and self._clock() < until
