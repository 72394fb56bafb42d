"""What this process knows of the folder: sizes, eviction order, quota."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from sgkv.backends.base import BackendStats
from sgkv.backends.eviction import EvictionPolicy
from sgkv.backends.keygroups import KeyGroups, Watcher

_BLOCK = 4096
"""Files are charged in file-system blocks, or a folder of small blobs would pass its quota."""
_SLICE = 1024
"""Keys taken in a lock hold when a scan is loaded."""
_SORTED = 32768
_VICTIMS = 256
_used = itemgetter(0)

Unloaded = tuple[float, str, int]
"""Last use, key and bytes of a blob. A bare tuple of such values is nothing that the garbage collector
has to look at; a million objects stop the whole process for it."""


class Victim(NamedTuple):
    """A blob that left the index to be deleted."""

    key: str
    size: int


def charge(size: int) -> int:
    """Bytes of quota a file of `size` bytes takes."""
    return -(-size // _BLOCK) * _BLOCK


def _latest_first(blobs: Sequence[Unloaded]) -> Iterator[Unloaded]:
    """By last use. One sort of a million would hold the interpreter for most of a second."""
    slices = (blobs[start : start + _SORTED] for start in range(0, len(blobs), _SORTED))
    return merge(*(sorted(some, key=_used, reverse=True) for some in slices), key=_used, reverse=True)


class DiskIndex:
    """Thread-safe bookkeeping; never does I/O under its lock."""

    def __init__(self, capacity: int, policy: EvictionPolicy) -> None:
        self.capacity = capacity
        self.sizes: dict[str, int] = {}
        """Bytes of each known blob. Read it without the lock."""
        self._lock = threading.Lock()
        self._policy = policy
        self._groups = KeyGroups()
        self._pinned: set[str] = set()
        self._known = 0
        self._claimed = 0
        self._unloaded = 0
        self._evicted: list[int] = [0, 0]
        self._counters: Counter[str] = Counter()

    @property
    def used(self) -> int:
        """Bytes of quota taken: known blobs, those being written, and what a scan has seen so far."""
        return self._known + self._claimed + self._unloaded

    def claim(self, size: int) -> bool:
        """Set quota aside for a blob being written; False where there is too little."""
        with self._lock:
            if self.used + charge(size) > self.capacity:
                return False
            self._claimed += charge(size)
            return True

    def settle(self, key: str, size: int, *, published: bool, after: str | None = None) -> None:
        """End a claim: the blob is there now, or it never will be."""
        with self._lock:
            self._claimed -= charge(size)
            if published:
                self._add(key, size, cold=False, after=after)

    def add(self, key: str, size: int, *, cold: bool = False) -> None:
        """Take in a blob that is there; a known key only changes its size."""
        with self._lock:
            self._add(key, size, cold)

    def forget(self, keys: Iterable[str]) -> list[bool]:
        """Drop what is gone; True where the key was known."""
        with self._lock:
            return [self._forget(key) is not None for key in keys]

    def touch(self, keys: Sequence[str]) -> None:
        with self._lock:
            self._policy.touch(keys)

    def reorder(self, keys: Sequence[str]) -> None:
        with self._lock:
            self._policy.reorder(keys)

    def pin(self, key: str, pinned: bool) -> bool:
        """Pinned blobs leave the eviction order; unpinned ones enter it as the most recent."""
        with self._lock:
            if key not in self.sizes:
                return False
            if pinned and key not in self._pinned:
                self._pinned.add(key)
                self._policy.remove(key)
            elif not pinned and key in self._pinned:
                self._pinned.discard(key)
                self._policy.admit(key, self.sizes[key])
            return True

    def watch(self, watcher: Watcher | None) -> list[str]:
        with self._lock:
            return self._groups.watch(watcher)

    def under(self, prefix: str) -> list[str]:
        with self._lock:
            return self._groups.under(prefix)

    def take_victims(self, wanted: int) -> list[Victim]:
        """Remove the next blobs to go, until they make up `wanted` bytes of quota or none is left."""
        victims: list[Victim] = []
        while wanted > 0 and (taken := self._take_some(wanted)):
            victims += taken
            wanted -= sum(charge(victim.size) for victim in taken)
        return victims

    def _take_some(self, wanted: int) -> list[Victim]:
        """Few enough that a reader who notes its use does not wait for a hundred thousand of them."""
        victims: list[Victim] = []
        with self._lock:
            for key in self._policy.victims(_VICTIMS):
                if wanted <= 0:
                    break
                victims.append(Victim(key, self._forget(key) or 0))
                wanted -= charge(victims[-1].size)
        return victims

    def count_evicted(self, victims: Sequence[Victim]) -> None:
        with self._lock:
            self._evicted[0] += len(victims)
            self._evicted[1] += sum(charge(victim.size) for victim in victims)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the counters `stats` shows."""
        with self._lock:
            self._counters[name] += amount

    def scanning(self, size: int) -> None:
        """Count a blob a scan has come across, until `load` takes them all in."""
        with self._lock:
            self._unloaded += charge(size)

    def load(self, new: Sequence[Unloaded], gone: Iterable[str]) -> None:
        """Take in a whole scan: what it found that was not known, and which known keys it did not find.

        New keys go in by their last use, below everything known, which is more recent. Keys that came
        while it ran stay, and so do those away that left while it ran.
        """
        latest_first = _latest_first(new)
        while some := list(islice(latest_first, _SLICE)):
            with self._lock:
                for _, key, size in some:
                    self._add(key, size, cold=True)
                    self._unloaded = max(0, self._unloaded - charge(size))
        with self._lock:
            self._unloaded = 0
        self.forget(gone)

    def stats(self) -> BackendStats:
        with self._lock:
            return BackendStats(
                blobs=len(self.sizes),
                used_bytes=self.used,
                capacity_bytes=self.capacity,
                pinned_bytes=sum(charge(self.sizes[key]) for key in self._pinned),
                evicted_blobs=self._evicted[0],
                evicted_bytes=self._evicted[1],
                counters=dict(self._counters),
            )

    def _add(self, key: str, size: int, cold: bool, after: str | None = None) -> None:
        known = self.sizes.get(key)
        self.sizes[key] = size
        self._known += charge(size) - (0 if known is None else charge(known))
        if known is None:
            self._groups.add(key)
            self._policy.admit(key, size, cold=cold, after=after)

    def _forget(self, key: str) -> int | None:
        size = self.sizes.pop(key, None)
        if size is not None:
            self._known -= charge(size)
            self._groups.discard(key)
            self._policy.remove(key)
            self._pinned.discard(key)
        return size
