"""Removing blobs: some, or everything below a prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from sgkv.backends.base import Status
from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.remote.listing import DELETE_BATCH
from sgkv.backends.s3.listing import Listing
from sgkv.backends.s3.objects import Objects
from sgkv.backends.workers import WorkerPool, spread


class Removal:
    """Requests are made in `pool`'s threads. Any thread."""

    def __init__(
        self,
        objects: Objects,
        listing: Listing,
        known: KnownKeys,
        faults: FaultLog,
        pool: WorkerPool,
        closed: Callable[[], bool],
    ) -> None:
        """No more requests are made for a prefix once `closed` says so."""
        self._objects = objects
        self._listing = listing
        self._known = known
        self._faults = faults
        self._pool = pool
        self._closed = closed

    def each(self, keys: Sequence[str]) -> list[bool]:
        """Remove these; True where there was one."""
        removed = [False] * len(keys)

        def remove(at: int) -> None:
            (there,) = self._known.presence([keys[at]])
            if not there:
                there = self._objects.head(keys[at], None) is Status.OK
            removed[at] = self._objects.delete(keys[at], None) and there

        spread(self._pool, len(keys), remove, self._pool.threads)
        return removed

    def empty(self, prefix: str) -> bool:
        """Remove all below a prefix, some pages of a listing at a time; False where some may be left."""
        try:
            complete = self._empty(prefix)
        except ConnectionError as error:
            self._faults.note("list", "list", str(error))
            return False
        if complete:
            self._known.miss_under(prefix)
        return complete

    def _empty(self, prefix: str) -> bool:
        """In turns, so that no more than a few pages of keys are in memory."""
        pages, complete = self._listing.pages(prefix), True
        while some := list(islice(pages, self._pool.threads)):
            if self._closed():
                return False
            complete &= self._remove([blob.key for page in some for blob in page.blobs])
        return complete

    def _remove(self, keys: Sequence[str]) -> bool:
        batches = [keys[start : start + DELETE_BATCH] for start in range(0, len(keys), DELETE_BATCH)]
        removed = [False] * len(batches)

        def remove(at: int) -> None:
            try:
                self._listing.remove(batches[at])
            except ConnectionError as error:
                self._faults.note("delete", "remove", str(error))
                return
            removed[at] = True

        spread(self._pool, len(batches), remove, self._pool.threads)
        return all(removed)
