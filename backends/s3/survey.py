"""Looking through the whole bucket now and then: what others wrote, what is gone, what is too old."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sgkv.backends.base import BlobInfo
from sgkv.backends.s3.faults import FaultLog
from sgkv.backends.s3.known import KnownKeys
from sgkv.backends.s3.listing import DELETE_BATCH, Listing


class Survey:
    """One thread that lists the prefix at once and then every `pause` seconds.

    A bucket with a capacity is counted whole; of any other no more keys are looked at than are
    remembered. Blobs older than `ttl`, by the server's clock, are removed, whichever process wrote them.
    """

    def __init__(
        self,
        listing: Listing,
        known: KnownKeys,
        faults: FaultLog,
        *,
        pause: float | None,
        ttl: float | None,
        most: int,
        ours: Callable[[str], bool],
    ) -> None:
        """`pause` and `ttl` in seconds, None is never; keys that are not `ours` are passed over."""
        self._listing = listing
        self._known = known
        self._faults = faults
        self._pause = pause
        self._ttl = ttl
        self._most = most
        self._ours = ours
        self._changed = threading.Condition()
        self._rounds = 0
        self._asked = 1
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="sgkv-s3-survey", daemon=True)
        if pause is not None:
            self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Until the first listing has ended, however it did; False after `timeout` s, or if there is none."""
        if self._pause is None:
            return False
        with self._changed:
            return self._changed.wait_for(lambda: self._rounds > 0 or self._closing, timeout)

    def again(self, timeout: float) -> bool:
        """List now, and wait for the end of it; False after `timeout` seconds, or where nothing lists."""
        if self._pause is None:
            return False
        with self._changed:
            self._asked += 1
            goal = self._asked
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._rounds >= goal or self._closing, timeout)

    def close(self, timeout: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._asked > self._rounds, self._pause)
                if self._closing:
                    return
                goal = max(self._asked, self._rounds + 1)
            try:
                self._round()
            except ConnectionError as error:
                self._faults.note("list", "list", str(error))
            with self._changed:
                self._rounds, self._asked = goal, max(goal, self._asked)
                self._changed.notify_all()

    def _round(self) -> None:
        began = self._known.clock()
        listed: set[str] = set()
        for page in self._listing.pages(""):
            self._faults.count("requests_list")
            blobs = [blob for blob in page.blobs if self._ours(blob.key)]
            old = [blob.key for blob in blobs if self._expired(blob, page.now)]
            self._sweep(old)
            gone = set(old)
            for blob in blobs:
                if blob.key not in gone:
                    listed.add(blob.key)
                    self._known.see(blob.key, blob.size, seen_at=began, cold=True)
            if self._closing or (self._known.capacity is None and len(listed) >= self._most):
                return
        self._known.miss_unlisted(listed, began)

    def _expired(self, blob: BlobInfo, now: float) -> bool:
        return self._ttl is not None and blob.modified + self._ttl < now

    def _sweep(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_BATCH):
            some = keys[start : start + DELETE_BATCH]
            try:
                self._listing.remove(some)
            except ConnectionError as error:  # they are old in the next round, too
                self._faults.note("sweep", "sweep", str(error))
                return
            self._known.miss(some)
            self._faults.count("swept", len(some))
