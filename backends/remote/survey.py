"""Looking through a whole server now and then: what others wrote, what is gone, what is too old."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgkv.backends.base import BlobInfo
from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.remote.listing import DELETE_BATCH, Listing
from sgkv.backends.remote.rounds import Rounds


class Survey:
    """Takes in what a listing of the whole shows, at once and then every `pause` seconds.

    A tier with a capacity is counted whole; of any other no more keys are looked at than are
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
        self._ttl = ttl
        self._most = most
        self._ours = ours
        self._rounds = Rounds(self._round, pause=pause, name="sgkv-survey")
        self._rounds.start()

    def wait(self, timeout: float) -> bool:
        """Until the first listing has ended, however it did; False after `timeout` s, or if there is none."""
        return self._rounds.wait(timeout)

    def again(self, timeout: float) -> bool:
        """List now, and wait for the end of it; False after `timeout` seconds, or where nothing lists."""
        return self._rounds.again(timeout)

    def close(self, timeout: float) -> None:
        self._rounds.close(timeout)

    def _round(self) -> None:
        try:
            self._look()
        except ConnectionError as error:
            self._faults.note("list", "list", str(error))

    def _look(self) -> None:
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
            if self._rounds.closing or (self._known.capacity is None and len(listed) >= self._most):
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
