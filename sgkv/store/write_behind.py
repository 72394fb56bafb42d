"""Moving pages from the arena to the tiers below it, off the engine's call."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sgkv.backends import failpoints
from sgkv.backends.base import Bound, PutItem
from sgkv.backends.cpu import Lease
from sgkv.boundary import contained
from sgkv.chunk.blob import BlobIdentity, put_item
from sgkv.counters import Counters
from sgkv.keys import chunk_keys, page_keys
from sgkv.store.tier import Tier

_BATCH_BYTES = 64 << 20
_LAST_WORDS = 0.1
"""Seconds for a writer that could not drain to notice that it is over."""


@dataclass(slots=True)
class Work:
    """Leased pages that become one chunk blob, or as many page blobs."""

    identity: BlobIdentity
    hashes: Sequence[str]
    leases: Sequence[Lease]
    full_chunk: bool
    expires_at: int
    chain: Sequence[str] = ()
    """Names of all chunks of the sequence, shared by the work of one call and needed for a full chunk: a
    write refreshes their recency, so that parents outlive children."""
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(lease.view) for lease in self.leases)

    def items(self) -> list[PutItem]:
        pages = [[lease.view] for lease in self.leases]
        if self.full_chunk:
            place = self.chain.index(self.hashes[-1])
            *before, key = chunk_keys(self.identity.namespace, self.chain[max(0, place - 1) : place + 1])
            after = before[0] if before else None
            return [put_item(key, self.identity, self.hashes, pages, self.expires_at, after)]
        keys = page_keys(self.identity.namespace, self.hashes)
        return [
            put_item(key, self.identity, [page_hash], [page], self.expires_at)
            for key, page_hash, page in zip(keys, self.hashes, pages, strict=True)
        ]

    def release(self) -> None:
        for lease in self.leases:
            lease.release()


class WriteBehind:
    """A bounded queue of leased pages and the threads that write them to the lower tiers.

    Tails (pages whose chunk is not full yet) wait `tail_delay` seconds for the rest of their chunk;
    `take_tail` hands them back when it arrives. Past `max_bytes` of leased pages new work is dropped
    and counted: the engine never waits. `submit`, `hold_tail` and `take_tail` never block on I/O.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        counters: Counters,
        *,
        max_bytes: int,
        tail_delay: float,
        threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tiers = tiers
        self._counters = counters
        self._max_bytes = max_bytes
        self._tail_delay = tail_delay
        self._clock = clock
        self._changed = threading.Condition()
        self._queue: deque[Work] = deque()
        self._tails: OrderedDict[tuple[str, str], tuple[float, Work]] = OrderedDict()
        self._leased = 0
        self._writing = 0
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"sgkv-write-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def leased_bytes(self) -> int:
        return self._leased

    def bounds(self) -> dict[str, Bound]:
        threads = sum(thread.is_alive() for thread in self._threads)
        return {
            "write_behind_bytes": Bound(self._leased, self._max_bytes),
            "write_behind_threads": Bound(threads, len(self._threads)),
        }

    @property
    def queued(self) -> int:
        return len(self._queue) + len(self._tails)

    def submit(self, work: Work) -> bool:
        """Queue for writing; False (and the leases released) when the queue is full or closing."""
        return self._admit(work, self._enqueue)

    def hold_tail(self, work: Work) -> bool:
        """Keep a single page until its chunk is completed or `tail_delay` has passed."""
        return self._admit(work, self._hold)

    def take_tail(self, namespace: str, page_hash: str) -> None:
        """The page's chunk is complete: it need not be written on its own any more."""
        with self._changed:
            entry = self._tails.pop((namespace, page_hash), None)
            if entry is not None:
                self._leased -= entry[1].size
        if entry is not None:
            entry[1].release()

    def flush(self, timeout: float) -> bool:
        """Write everything that is queued or held, now; False if `timeout` seconds were not enough."""
        with self._changed:
            self._queue.extend(work for _, work in self._tails.values())
            self._tails.clear()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._queue and not self._writing, timeout)

    def discard(self, namespace: str, timeout: float) -> bool:
        """Forget queued work of a namespace and wait for what is being written; False if too long."""
        with self._changed:
            dropped = [work for work in self._queue if work.identity.namespace == namespace]
            dropped += [work for _, work in self._tails.values() if work.identity.namespace == namespace]
            self._queue = deque(work for work in self._queue if work.identity.namespace != namespace)
            for key in [key for key in self._tails if key[0] == namespace]:
                del self._tails[key]
            self._leased -= sum(work.size for work in dropped)
            idle = self._changed.wait_for(lambda: not self._writing, timeout)
        for work in dropped:
            work.release()
        return idle

    def close(self, drain_timeout: float) -> None:
        """Drain for at most `drain_timeout` seconds, then drop what is left. Idempotent."""
        drained = self.flush(drain_timeout)
        with self._changed:
            self._closing = True
            left = [*self._queue, *(work for _, work in self._tails.values())]
            self._queue.clear()
            self._tails.clear()
            self._leased -= sum(work.size for work in left)
            self._changed.notify_all()
        for work in left:
            work.release()
        self._counters.add("write_behind_dropped_pages", sum(len(work.hashes) for work in left))
        for thread in self._threads:  # one that hangs in a tier ends with the deadline of that tier
            thread.join(None if drained else _LAST_WORDS)

    def _admit(self, work: Work, place: Callable[[Work], None]) -> bool:
        with self._changed:
            admitted = not self._closing and self._leased + work.size <= self._max_bytes
            if admitted:
                self._leased += work.size
                place(work)
                self._changed.notify()
        if not admitted:
            work.release()
            self._counters.add("write_behind_dropped_pages", len(work.hashes))
        return admitted

    def _enqueue(self, work: Work) -> None:
        self._queue.append(work)

    def _hold(self, work: Work) -> None:
        key = (work.identity.namespace, work.hashes[0])
        if key in self._tails:  # already waiting: one lease is enough
            self._leased -= work.size
            work.release()
        else:
            self._tails[key] = (self._clock() + self._tail_delay, work)

    def _run(self) -> None:
        while batch := self._next_batch():
            with contained("writing to the lower tiers", self._counters):
                self._write(batch)
            for work in batch:
                work.release()
            with self._changed:
                self._writing -= len(batch)
                self._leased -= sum(work.size for work in batch)
                self._changed.notify_all()

    def _next_batch(self) -> list[Work]:
        """Wait for work; empty when closing and drained."""
        with self._changed:
            while True:
                self._move_due_tails()
                if self._queue:
                    break
                if self._closing:
                    return []
                self._changed.wait(self._until_next_tail())
            batch: list[Work] = []
            size = 0
            while self._queue and size < _BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += batch[-1].size
            self._writing += len(batch)
            return batch

    def _move_due_tails(self) -> None:
        now = self._clock()
        while self._tails:
            key = next(iter(self._tails))
            if self._tails[key][0] > now:
                return
            self._queue.append(self._tails.pop(key)[1])

    def _until_next_tail(self) -> float | None:
        if not self._tails:
            return None
        return max(0.0, next(iter(self._tails.values()))[0] - self._clock())

    def _write(self, batch: Sequence[Work]) -> None:
        items = [item for work in batch for item in work.items()]
        failpoints.passing("behind.taken")
        for tier in self._tiers:
            statuses = tier.backend.put(items)
            failpoints.passing("behind.written")
            self._counters.writes(tier.name, statuses, [item.size for item in items])
            self._refresh(tier, batch)
        failpoints.passing("behind.done")

    def _refresh(self, tier: Tier, batch: Sequence[Work]) -> None:
        """Leave the order of eviction as: children first, then their parents."""
        chains = {id(work.chain): work for work in batch if work.full_chunk}
        for work in chains.values():
            tier.backend.touch(chunk_keys(work.identity.namespace, work.chain)[::-1])
