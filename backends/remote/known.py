"""What this process knows of a bucket: keys lately seen there or not, their sizes, quota and order."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sgkv.backends.base import BackendStats
from sgkv.backends.eviction import make_policy
from sgkv.backends.keygroups import KeyGroups

_VICTIMS = 256


class Victim(NamedTuple):
    """A blob that left the index to be deleted."""

    key: str
    size: int


class KnownKeys:
    """Thread-safe bookkeeping; never does I/O.

    Knowledge ages: the bucket is shared, and others write and delete. Of a bucket without a capacity
    at most `most` keys are remembered, the most recently used; with one, all that count against it.
    """

    def __init__(
        self,
        capacity: int | None,
        *,
        most: int,
        present_seconds: float,
        absent_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`capacity` in bytes, None is no limit; how long each kind of knowledge counts."""
        self.capacity = capacity
        self.clock = clock
        self._most = most
        self._present_seconds = present_seconds
        self._absent_seconds = absent_seconds
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[int, float]] = {}
        """Size of each blob, and when it was last known to be there."""
        self._gone: OrderedDict[str, float] = OrderedDict()
        """When a key was last known not to be there; the oldest first."""
        self._order = make_policy("lru")
        self._groups = KeyGroups()
        self._pinned: set[str] = set()
        self._used = self._claimed = 0
        self._evicted_blobs = self._evicted_bytes = 0

    def presence(self, keys: Sequence[str]) -> list[bool | None]:
        """Whether each key is there; None where that is not known, or too long ago."""
        now = self.clock()
        with self._lock:
            return [self._presence(key, now) for key in keys]

    def claim(self, size: int) -> bool:
        """Set room aside for a blob being written; False where there is too little."""
        with self._lock:
            if self.capacity is not None and self._used + self._claimed + size > self.capacity:
                return False
            self._claimed += size
            return True

    def settle(self, key: str, size: int, *, published: bool) -> None:
        """End a claim: the blob is there now, or it never will be."""
        with self._lock:
            self._claimed -= size
            if published:
                self._see(key, size, self.clock(), cold=False)

    def see(self, key: str, size: int, *, seen_at: float | None = None, cold: bool = False) -> None:
        """Take in a blob that is, or at `seen_at` was, there. What is known of a later time stands."""
        at = self.clock() if seen_at is None else seen_at
        with self._lock:
            if self._gone.get(key, at) <= at:
                self._see(key, size, at, cold)

    def miss(self, keys: Iterable[str]) -> list[bool]:
        """Take in that these are not there now; True where they were thought to be."""
        now = self.clock()
        with self._lock:
            return [self._miss(key, now) for key in keys]

    def miss_under(self, prefix: str) -> None:
        """Take in that nothing is there under a prefix."""
        now = self.clock()
        with self._lock:
            for key in self._groups.under(prefix):
                self._miss(key, now)

    def miss_unlisted(self, listed: set[str], began: float) -> None:
        """A listing begun at `began` found only `listed`: what was known before and is not there is gone."""
        now = self.clock()
        with self._lock:  # all at once: what is written meanwhile must not be taken for lost
            for key in [key for key, (_, at) in self._blobs.items() if at < began and key not in listed]:
                self._miss(key, now)

    def touch(self, keys: Sequence[str]) -> None:
        with self._lock:
            self._order.touch(keys)

    def pin(self, key: str, pinned: bool) -> bool:
        with self._lock:
            if key not in self._blobs:
                return False
            if pinned and key not in self._pinned:
                self._pinned.add(key)
                self._order.remove(key)
            elif not pinned and key in self._pinned:
                self._pinned.discard(key)
                self._order.admit(key, self._blobs[key][0])
            return True

    def take_victims(self, room_for: int) -> list[Victim]:
        """Remove the next blobs to go until `room_for` more bytes fit, or none is left."""
        victims: list[Victim] = []
        with self._lock:
            wanted = self._used + self._claimed + room_for - (self.capacity or 0)
            for key in self._order.victims(_VICTIMS):
                if wanted <= 0:
                    break
                size = self._blobs[key][0]
                self._miss(key, self.clock())
                victims.append(Victim(key, size))
                wanted -= size
        return victims

    def count_evicted(self, victims: Sequence[Victim]) -> None:
        with self._lock:
            self._evicted_blobs += len(victims)
            self._evicted_bytes += sum(victim.size for victim in victims)

    def stats(self) -> BackendStats:
        with self._lock:
            return BackendStats(
                blobs=len(self._blobs),
                used_bytes=self._used + self._claimed,
                capacity_bytes=self.capacity or 0,
                pinned_bytes=sum(self._blobs[key][0] for key in self._pinned),
                evicted_blobs=self._evicted_blobs,
                evicted_bytes=self._evicted_bytes,
            )

    def _presence(self, key: str, now: float) -> bool | None:
        blob = self._blobs.get(key)
        if blob is not None:
            return True if now - blob[1] < self._present_seconds else None
        gone = self._gone.get(key)
        return False if gone is not None and now - gone < self._absent_seconds else None

    def _see(self, key: str, size: int, at: float, cold: bool) -> None:
        known = self._blobs.get(key)
        self._gone.pop(key, None)
        self._blobs[key] = size, at if known is None else max(at, known[1])
        self._used += size - (0 if known is None else known[0])
        if known is None:
            self._groups.add(key)
            self._order.admit(key, size, cold=cold)
            self._stay_bounded()

    def _miss(self, key: str, now: float) -> bool:
        self._gone[key] = now
        self._gone.move_to_end(key)
        if len(self._gone) > self._most:
            self._gone.popitem(last=False)
        return self._drop(key)

    def _drop(self, key: str) -> bool:
        blob = self._blobs.pop(key, None)
        if blob is None:
            return False
        self._used -= blob[0]
        self._groups.discard(key)
        self._order.remove(key)
        self._pinned.discard(key)
        return True

    def _stay_bounded(self) -> None:
        if self.capacity is None and len(self._blobs) > self._most:
            for key in self._order.victims(1):
                self._drop(key)
