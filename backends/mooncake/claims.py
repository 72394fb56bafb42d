"""Who is busy with which keys in this process, so that two of its threads never work on one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sgkv.backends.deadline import Deadline


class Claims:
    """Keys being written. The library knows one session a key and connection; a second would fail."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: set[str] = set()

    @contextmanager
    def holding(self, keys: Sequence[str], deadline: Deadline) -> Iterator[bool]:
        """Hold distinct keys, once nobody else does; yields False when that takes too long."""
        wanted = frozenset(keys)
        with self._changed:
            held = self._changed.wait_for(lambda: not self._held & wanted, deadline.remaining())
            if held:
                self._held |= wanted
        try:
            yield held
        finally:
            if held:
                with self._changed:
                    self._held -= wanted
                    self._changed.notify_all()


class Removals:
    """Tells readers of keys that were removed under them.

    The pool gives a removed blob's memory to the next one at once, also while somebody reads it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[tuple[frozenset[str], set[str]]] = []

    @contextmanager
    def watching(self, keys: Sequence[str]) -> Iterator[set[str]]:
        """Inside, the yielded set collects those of `keys` that this process removes."""
        watch = (frozenset(keys), set[str]())
        with self._lock:
            self._readers.append(watch)
        try:
            yield watch[1]
        finally:
            with self._lock:
                self._readers = [other for other in self._readers if other is not watch]

    def note(self, keys: Sequence[str]) -> None:
        """Say that `keys` are about to be removed."""
        with self._lock:
            for watched, removed in self._readers:
                removed.update(watched.intersection(keys))

    def note_prefix(self, prefix: str) -> None:
        """Say that everything whose key starts with `prefix` is."""
        with self._lock:
            for watched, removed in self._readers:
                removed.update(key for key in watched if key.startswith(prefix))
