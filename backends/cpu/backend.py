"""The CPU tier: blobs in one arena of this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sgkv.backends.base import Backend, BackendStats, BlobInfo, Buffer, Capabilities, GetItem, PutItem, Status
from sgkv.backends.cpu.arena import Arena
from sgkv.backends.cpu.index import BlobIndex, Entry
from sgkv.backends.cpu.leases import Lease, Reservation
from sgkv.backends.cpu.slabs import BLOCK_UNIT
from sgkv.backends.cpu.transfer import Load, reads, writes
from sgkv.backends.deadline import Deadline
from sgkv.backends.eviction import make_policy
from sgkv.backends.keygroups import Watcher, require_folder_prefix
from sgkv.backends.workers import WorkerPool, spread

_SPLIT_BYTES = 8 << 20
"""Batches from this size on are copied by several threads, where there are several."""
_SLICE = 1024
"""Keys removed a lock hold, so that dropping a namespace does not stall the engine."""
_DRAIN_SECONDS = 5.0


class CpuBackend(Backend):
    """Blobs in anonymous memory, with references in place of copies for those who want them.

    The lock guards bookkeeping only and is taken twice a batch; bytes are copied outside of it.
    """

    def __init__(
        self,
        capacity: int,
        *,
        name: str = "cpu",
        copy_threads: int | None = None,
        eviction: str = "lru",
        prefault: bool = True,
        shared: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`capacity` in bytes, rounded down to whole blocks; `copy_threads` includes the caller's.

        `shared` makes the memory one that other processes can map (`descriptor`). `clock` gives Unix
        seconds, for expiry. Raises ValueError on a capacity below one block.
        """
        if capacity < BLOCK_UNIT:
            raise ValueError(f"capacity must be at least {BLOCK_UNIT} bytes, got {capacity}")
        self.name = name
        self.capabilities = Capabilities(local_index=True, pins=True, abandonable=True)
        self._clock = clock
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._index = BlobIndex(capacity, make_policy(eviction))
        self._arena = Arena(self._index.slabs.capacity, prefault=prefault, shared=shared)
        self._helpers = (copy_threads or _default_copy_threads()) - 1
        self._pool = WorkerPool(max(1, self._helpers), f"sgkv-{name}-copy", backlog=2 * self._helpers)
        self._batches = 0
        self._closed = False

    def contains(self, keys: Sequence[str]) -> list[bool]:
        if self._closed:
            return [False] * len(keys)
        if self._index.expiring:
            return self._index.contains(keys, self._clock())
        return list(map(self._index.entries.__contains__, keys))

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        with self._lock:
            if self._closed:
                return [Status.CLOSED] * len(items)
            self._batches += 1
            now, reserve = self._clock(), self._index.reserve
            slots = [reserve(item.key, item.size, item.expires_at, now, item.after) for item in items]
        statuses = [slot if isinstance(slot, Status) else Status.ERROR for slot in slots]
        todo = [(at, slot) for at, slot in enumerate(slots) if isinstance(slot, Entry)]

        def write(load: Load) -> Status:
            status = load.carry(deadline)
            # Whoever lent the buffers may have taken them back while they were read.
            return Status.TIMEOUT if deadline is not None and deadline.expired else status

        try:
            self._each(writes(self._arena.address, todo, items), write, statuses)
        finally:
            self._publish(todo, statuses)
        return statuses

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        with self._lock:
            if self._closed:
                return [Status.CLOSED] * len(items)
            self._batches += 1
            now, acquire = self._clock(), self._index.acquire
            entries = [acquire(item.key, now) for item in items]
        statuses = [Status.ABSENT if entry is None else Status.SHORT for entry in entries]
        todo = [(at, entry) for at, entry in enumerate(entries) if entry is not None]
        try:
            loads = reads(self._arena.address, todo, items)
            self._each(loads, lambda load: load.carry(deadline), statuses)
        finally:
            self._return(todo, statuses)
        return statuses

    def reserve(
        self, key: str, size: int, expires_at: int = 0, after: str | None = None
    ) -> Reservation | Status:
        """Room for one blob, to be filled in place; else EXISTS, FULL or CLOSED."""
        with self._lock:
            if self._closed:
                return Status.CLOSED
            entry = self._index.reserve(key, size, expires_at, self._clock(), after)
        if isinstance(entry, Status):
            return entry
        view = self._arena.view[entry.offset : entry.offset + size]
        return Reservation(view, entry.offset, partial(self._end_reservation, entry))

    def lease(self, keys: Sequence[str], *, use: bool = True) -> list[Lease | None]:
        """Each blob where it lies, or None where there is none; refreshes the eviction order.

        Without `use` that is all: policies of eviction that count uses do not count this one.
        """
        with self._lock:
            if self._closed:
                return [None] * len(keys)
            now, acquire = self._clock(), self._index.acquire
            entries = [acquire(key, now) for key in keys]
            (self._index.touch if use else self._index.reorder)(keys)
        return [None if entry is None else self._lease_of(entry) for entry in entries]

    def delete(self, keys: Sequence[str]) -> list[bool]:
        with self._lock:
            return [not self._closed and self._index.remove(key) for key in keys]

    def delete_prefix(self, prefix: str) -> bool:
        require_folder_prefix(prefix)
        with self._lock:
            keys = [] if self._closed else self._index.under(prefix)
        for start in range(0, len(keys), _SLICE):
            self.delete(keys[start : start + _SLICE])
        return not self._closed

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        with self._lock:
            keys = [] if self._closed else self._index.under(prefix)
        found = map(self._index.entries.get, keys)
        yield from (BlobInfo(entry.key, entry.size, entry.modified) for entry in found if entry is not None)

    def touch(self, keys: Sequence[str]) -> None:
        with self._lock:
            self._index.reorder(keys)

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        with self._lock:
            return [not self._closed and self._index.pin(key, pinned) for key in keys]

    def watch(self, watcher: Watcher | None) -> list[str]:
        with self._lock:
            return self._index.watch(watcher)

    def held_by(self, groups: Sequence[str]) -> int:
        """Bytes of the arena that keys of some groups (their first path segments) take."""
        with self._lock:
            return self._index.held_by(groups)

    def shrink(self, groups: Sequence[str], wanted: int) -> int:
        """Evict the coldest blobs of some groups, `wanted` bytes of them; how many could be.

        Looks through all blobs with the lock held, so ask for more than the next write needs.
        """
        with self._lock:
            return self._index.shrink(frozenset(groups), wanted)

    @property
    def memory(self) -> Buffer:
        """The arena, which all blobs lie in."""
        return self._arena.view

    @property
    def descriptor(self) -> int | None:
        """Of the arena's memory, where it is shared and not closed yet."""
        return self._arena.fd

    def wait_prefaulted(self, timeout: float) -> bool:
        """Wait until all of the arena is resident; False after `timeout` seconds or if it cannot be."""
        return self._arena.wait_prefaulted(timeout)

    def stats(self) -> BackendStats:
        with self._lock:
            index = self._index
            return BackendStats(
                blobs=len(index.entries),
                used_bytes=index.slabs.used,
                capacity_bytes=index.slabs.capacity,
                pinned_bytes=index.pinned_bytes,
                leases=index.refs,
                evicted_blobs=index.evicted_blobs,
                evicted_bytes=index.evicted_bytes,
                bounds=self._pool.bounds("copy"),
                counters={"prefaulted_bytes": self._arena.prefaulted_bytes},
            )

    def close(self) -> None:
        """Batches under way finish; leases stay readable until they are released."""
        with self._drained:
            self._closed = True
            self._drained.wait_for(lambda: not self._batches, _DRAIN_SECONDS)
        self._pool.close(_DRAIN_SECONDS)
        self._arena.stop()

    def _each(self, loads: Sequence[Load], work: Callable[[Load], Status], statuses: list[Status]) -> None:
        def carry(nth: int) -> None:
            status = work(loads[nth])
            for place in loads[nth].places:
                statuses[place] = status

        helpers = self._helpers if sum(load.size for load in loads) >= _SPLIT_BYTES else 0
        spread(self._pool, len(loads), carry, helpers)

    def _publish(self, todo: Sequence[tuple[int, Entry]], statuses: list[Status]) -> None:
        with self._drained:
            for at, entry in todo:
                if statuses[at] is Status.OK:
                    statuses[at] = self._index.commit(entry)
                else:
                    self._index.release(entry)
            self._end_batch()

    def _return(self, todo: Sequence[tuple[int, Entry]], statuses: list[Status]) -> None:
        with self._drained:
            self._index.touch([entry.key for at, entry in todo if statuses[at] is Status.OK])
            for _, entry in todo:
                self._index.release(entry)
            self._end_batch()

    def _end_batch(self) -> None:
        self._batches -= 1
        if self._closed and not self._batches:
            self._drained.notify_all()

    def _end_reservation(self, entry: Entry, publish: bool, expires_at: int | None) -> Status:
        if expires_at is not None:
            entry.expires_at = expires_at
        with self._lock:
            if publish and not self._closed:
                return self._index.commit(entry)
            self._index.release(entry)
            return Status.CLOSED

    def _lease_of(self, entry: Entry) -> Lease:
        view = self._arena.view[entry.offset : entry.offset + entry.size]
        return Lease(view.toreadonly(), entry.offset, partial(self._end_lease, entry))

    def _end_lease(self, entry: Entry) -> None:
        with self._lock:
            self._index.release(entry)


def _default_copy_threads() -> int:
    cpus = os.cpu_count() or 1
    return min(cpus, 4, max(2, cpus // 4))
