"""Removing everything below a prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.remote.listing import DELETE_BATCH
from sgkv.backends.s3.listing import Listing
from sgkv.backends.workers import WorkerPool, spread


class Removal:
    """Lists and removes in turns, so that no more than a few pages of keys are in memory."""

    def __init__(
        self, listing: Listing, pool: WorkerPool, faults: FaultLog, closed: Callable[[], bool]
    ) -> None:
        """Requests are made in `pool`'s threads, and no more of them once `closed` says so."""
        self._listing = listing
        self._pool = pool
        self._faults = faults
        self._closed = closed

    def empty(self, prefix: str) -> bool:
        """False where some may be left. Raises ConnectionError where the listing breaks off."""
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
