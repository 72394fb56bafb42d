"""The mooncake tier: blobs in memory (and SSD) that is pooled over machines."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from sgkv.backends.base import (
    Backend,
    BackendStats,
    BlobInfo,
    Buffer,
    Capabilities,
    GetItem,
    PutItem,
    Status,
)
from sgkv.backends.deadline import Deadline
from sgkv.backends.keygroups import require_folder_prefix
from sgkv.backends.mooncake.admin import Admin
from sgkv.backends.mooncake.claims import Removals
from sgkv.backends.mooncake.client import Client, State
from sgkv.backends.mooncake.keys import native_key, pattern_below
from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.backends.mooncake.reader import Reader
from sgkv.backends.mooncake.staging import Staging
from sgkv.backends.mooncake.unreachable import Unreachable
from sgkv.backends.mooncake.writer import Writer
from sgkv.backends.workers import WorkerPool

log = logging.getLogger(__name__)

_BACKLOG = 4
"""Waiting tasks a thread; past it a batch is refused instead of queued."""
_FULL_PAUSE = 0.5
"""Seconds without puts after the pool had no room: its master evicts in the background."""
_DRAIN_SECONDS = 5.0


class MooncakeBackend(Backend):
    """Blobs in a Mooncake pool, through a layer that keeps its library from harm.

    Where the pool differs from the contract: its master evicts, by its own order and before all of the
    capacity is used, so there are no gauges of it here (its own metrics have them); a lookup grants a
    lease of some seconds; `pin` is a matter of `MooncakeOptions.pin` when a blob is written; a blob of
    no bytes cannot be kept and is `Status.ERROR`; bytes read while another process deletes or clears
    them may be those of another blob, which the chunk's checksums find out.
    """

    def __init__(
        self,
        options: MooncakeOptions,
        *,
        name: str = "mooncake",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect, for up to `options.connect_wait` seconds; after that calls fail until it succeeds.

        Raises LibraryMissingError.
        """
        self.name = name
        self.capabilities = Capabilities(persistent=not options.segment_bytes, shared=True, abandonable=True)
        self._clock = clock
        self._client = Client(options, clock)
        self._admin = Admin(options.admin_url)
        self._readers = WorkerPool(
            options.io_threads, f"sgkv-{name}-read", backlog=_BACKLOG * options.io_threads
        )
        self._writers = WorkerPool(
            options.io_threads, f"sgkv-{name}-write", backlog=_BACKLOG * options.io_threads
        )
        staging = Staging(self._client, options)
        self._staging = staging
        self._reader = Reader(self._client, staging, self._readers)
        sessions = not options.standalone
        self._writer = Writer(self._client, staging, self._writers, sessions=sessions)
        self._unreachable = Unreachable(clock)
        self._removals = Removals()
        self._full_until = 0.0
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter(unreachable_blobs=0, full=0)
        if not self._client.connect(options.connect_wait):
            log.warning("%s: goes on without %s until that answers", name, options.master)

    @property
    def connected(self) -> bool:
        """Whether the pool has been reached once; its library reconnects by itself from then on."""
        return self._client.state is State.READY

    def register_memory(self, view: Buffer) -> bool:
        """False where the transport refuses, or another registered run overlaps: then puts are copied."""
        return self._client.register(view)

    def contains(self, keys: Sequence[str]) -> list[bool]:
        return self.probe(keys)[0]

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        """One round trip, of up to `rpc_timeout`; a key whose node failed lately is not there."""
        if not keys:
            return [], Status.OK
        with self._client.using() as connection:
            if connection is None:
                return [False] * len(keys), self._client.why_not
            codes = connection.store.batch_is_exist([native_key(key) for key in keys])
        if all(code < 0 for code in codes):
            return [False] * len(keys), Status.ERROR
        unreachable = self._unreachable
        return [
            code == 1 and key not in unreachable for key, code in zip(keys, codes, strict=True)
        ], Status.OK

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        if self._client.state is State.CLOSED:
            return [Status.CLOSED] * len(items)
        if self._clock() < self._full_until:
            return [Status.FULL] * len(items)
        deadline = deadline or Deadline(None)
        if deadline.over:
            return [Status.TIMEOUT] * len(items)
        firsts = {item.key: at for at, item in reversed(list(enumerate(items)))}
        ours = sorted(at for at in firsts.values() if items[at].size)
        statuses = [Status.ERROR] * len(items)
        for at, status in zip(ours, self._writer.put([items[at] for at in ours], deadline), strict=True):
            statuses[at] = status
        for at, item in enumerate(items):
            if firsts[item.key] != at:
                first = statuses[firsts[item.key]]
                statuses[at] = Status.EXISTS if first is Status.OK else first
        self._account_writes(items, statuses)
        return statuses

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        if self._client.state is State.CLOSED:
            return [Status.CLOSED] * len(items)
        deadline = deadline or Deadline(None)
        if deadline.over:
            return [Status.TIMEOUT] * len(items)
        wanted = [at for at, item in enumerate(items) if item.key not in self._unreachable]
        statuses = [Status.ABSENT] * len(items)
        with self._removals.watching([items[at].key for at in wanted]) as removed:
            found, unreachable = self._reader.get([items[at] for at in wanted], deadline)
            for at, status in zip(wanted, found, strict=True):
                gone = status.ok and items[at].key in removed
                statuses[at] = Status.ABSENT if gone else status
        if unreachable:
            self._unreachable.add(unreachable)
            self._count("unreachable_blobs", len(unreachable))
        return statuses

    def delete(self, keys: Sequence[str]) -> list[bool]:
        if not keys:
            return []
        with self._client.using() as connection:
            if connection is None:
                return [False] * len(keys)
            self._removals.note(keys)
            codes = connection.store.batch_remove([native_key(key) for key in keys], True)
        return [code == 0 for code in codes]

    def delete_prefix(self, prefix: str) -> bool:
        """By one call for all keys below, leased ones included; never by the library's `remove_all`."""
        require_folder_prefix(prefix)
        with self._client.using() as connection:
            if connection is None:
                return False
            self._removals.note_prefix(prefix)
            return connection.store.remove_by_regex(pattern_below(prefix), True) >= 0

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        """Through the master's HTTP server. Raises ConnectionError where that does not answer."""
        try:
            yield from self._admin.blobs(prefix)
        except OSError as error:
            raise ConnectionError(f"{self._admin.url} does not say what it holds: {error}") from error

    def stats(self) -> BackendStats:
        with self._lock:
            counters = dict(self._counters)
        counters["put_direct_bytes"], counters["put_copied_bytes"] = self._writer.moved
        states = {"registered_bytes": self._client.registered_bytes, "connected": int(self.connected)}
        bounds = self._readers.bounds("read") | self._writers.bounds("write") | self._staging.bounds()
        return BackendStats(bounds=bounds, counters=counters, states=states)

    def close(self) -> None:
        if self._client.foreign:
            return
        self._client.close()
        ends = time.monotonic() + _DRAIN_SECONDS
        self._readers.close(max(0.0, ends - time.monotonic()))
        self._writers.close(max(0.0, ends - time.monotonic()))

    def _account_writes(self, items: Sequence[PutItem], statuses: Sequence[Status]) -> None:
        self._unreachable.discard(
            item.key for item, status in zip(items, statuses, strict=True) if status is Status.OK
        )
        full = sum(status is Status.FULL for status in statuses)
        if full:
            self._full_until = self._clock() + _FULL_PAUSE
            self._count("full", full)

    def _count(self, name: str, amount: int) -> None:
        with self._lock:
            self._counters[name] += amount
