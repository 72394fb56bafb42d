"""Copying what was read from a lower tier into the arena, off the engine's call."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from sgkv.backends import failpoints
from sgkv.backends.base import Bound, Status
from sgkv.backends.cpu import CpuBackend, Reservation
from sgkv.boundary import contained
from sgkv.chunk.blob import BlobRead, Page
from sgkv.counters import Counters
from sgkv.keys import page_keys
from sgkv.store.tier import Tier


class Promoter:
    """One thread that reads verified blobs again, this time into the arena.

    The engine's pages cannot be the source: they belong to the engine again as soon as its call
    has returned. The second read comes from a warm page cache. Bounded; past the bound a promotion
    is dropped, for it is only an optimisation.
    """

    def __init__(self, arena: CpuBackend, counters: Counters, max_pages: int) -> None:
        """`max_pages` may be queued."""
        self._arena = arena
        self._max_pages = max_pages
        self._counters = counters
        self._changed = threading.Condition()
        self._queue: deque[tuple[Tier, BlobRead, str]] = deque()
        self._queued_pages = 0
        self._busy = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="sgkv-promote", daemon=True)
        self._thread.start()

    def submit(self, reads: Sequence[tuple[Tier, BlobRead]], arena_namespace: str) -> None:
        """Queue blobs whose pages were just read and verified; last chunk first, parents outlive children."""
        with self._changed:
            for tier, read in reversed(reads):
                if self._closing or self._queued_pages + len(read.hashes) > self._max_pages:
                    self._counters.add("promotions_dropped", len(read.hashes))
                    continue
                self._queue.append((tier, _without_pages(read), arena_namespace))
                self._queued_pages += len(read.hashes)
            self._changed.notify()

    def bounds(self) -> dict[str, Bound]:
        return {
            "promotion_pages": Bound(self._queued_pages, self._max_pages),
            "promotion_threads": Bound(int(self._thread.is_alive()), 1),
        }

    def flush(self, timeout: float) -> bool:
        """Wait until everything queued is done."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)

    def discard(self, arena_namespace: str, timeout: float) -> bool:
        """Forget queued promotions of a namespace and wait for the one under way; False if too long."""
        with self._changed:
            self._queue = deque(entry for entry in self._queue if entry[2] != arena_namespace)
            self._queued_pages = sum(len(entry[1].hashes) for entry in self._queue)
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def close(self, timeout: float) -> None:
        """Forget what is queued; wait at most `timeout` seconds for what is under way."""
        with self._changed:
            self._closing = True
            self._queue.clear()
            self._changed.notify_all()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if self._closing:
                    return
                tier, read, arena_namespace = self._queue.popleft()
                self._queued_pages -= len(read.hashes)
                self._busy = True
            with contained("promoting to the cpu tier", self._counters):
                self._promote(tier, read, arena_namespace)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _promote(self, tier: Tier, read: BlobRead, arena_namespace: str) -> None:
        reservations: dict[int, Reservation] = {}
        page_bytes = read.identity.layout.page_bytes
        keys = page_keys(arena_namespace, read.hashes)
        for index, (key, after) in enumerate(zip(keys, [None, *keys], strict=False)):
            reservation = self._arena.reserve(key, page_bytes, read.expires_at, after)
            if isinstance(reservation, Reservation):
                reservations[index] = reservation
        if not reservations:
            return
        failpoints.passing("promote.reserved")
        again = BlobRead(
            read.key,
            read.identity,
            read.total_pages,
            [read.positions[index] for index in reservations],
            [read.hashes[index] for index in reservations],
            [[reservation.view] for reservation in reservations.values()],
        )
        status = Status.ERROR
        try:
            (status,) = tier.backend.get([again.item()])
            failpoints.passing("promote.read")
        finally:
            for reservation in reversed(reservations.values()):
                if status is Status.OK:
                    reservation.commit()
                else:
                    reservation.abort()
        failpoints.passing("promote.committed")
        if status is Status.OK:
            self._counters.add("promoted_pages", len(reservations))


def _without_pages(read: BlobRead) -> BlobRead:
    """What to read again, without holding on to the engine's memory."""
    pages: list[Page] = [[] for _ in read.hashes]
    return BlobRead(
        read.key, read.identity, read.total_pages, read.positions, read.hashes, pages, read.expires_at
    )
