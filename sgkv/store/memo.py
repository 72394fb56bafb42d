"""Where lookups saw pages, remembered for the reads that follow."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from sgkv.backends.base import Bound


class Spot(NamedTuple):
    """A page inside a full chunk."""

    last_hash: str
    position: int


class ChunkMemo:
    """Bounded map from page hash to its chunk.

    A read may end in the middle of a chunk (engines cut their batches anywhere) and then cannot
    name the chunk, which is named by its last page. The lookup before it could. Two generations of
    at most `capacity` pages; the older one is forgotten whole. Any thread.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._young: dict[str, Spot] = {}
        self._old: dict[str, Spot] = {}

    def remember(self, chunk: Sequence[str]) -> None:
        """`chunk` are the hashes of all pages of a chunk that exists."""
        last = chunk[-1]
        with self._lock:
            if len(self._young) + len(chunk) > self._capacity:
                self._old, self._young = self._young, {}
            for position, page_hash in enumerate(chunk):
                self._young[page_hash] = Spot(last, position)

    def find(self, page_hash: str) -> Spot | None:
        return self._young.get(page_hash) or self._old.get(page_hash)

    @property
    def pages(self) -> Bound:
        with self._lock:
            return Bound(len(self._young) + len(self._old), 2 * self._capacity)

    def forget(self) -> None:
        with self._lock:
            self._young, self._old = {}, {}
