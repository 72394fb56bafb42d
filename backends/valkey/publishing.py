"""Publishing a batch: which blobs are new, room for them, and the writes."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sgkv.backends.base import PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.remote.room import claim
from sgkv.backends.valkey.exchange import Exchange
from sgkv.backends.valkey.names import Names
from sgkv.backends.valkey.requests import Ask
from sgkv.backends.valkey.writing import LARGEST_VALUE, Write
from sgkv.backends.workers import WorkerPool


class Publisher:
    """Any thread."""

    def __init__(self, exchange: Exchange, known: KnownKeys, pool: WorkerPool, names: Names) -> None:
        self._exchange = exchange
        self._known = known
        self._pool = pool
        self._names = names
        self._lock = threading.Lock()
        self._written = 0

    def put(self, items: Sequence[PutItem], deadline: Deadline | None) -> list[Status]:
        """One round trip to learn which are there, and one for those that are not."""
        if deadline is not None and deadline.over:
            return [Status.TIMEOUT] * len(items)
        asks = [Ask(b"EXISTS", self._names.of(item.key)) for item in items]
        found = self._exchange.run("exists", asks, self._pool, deadline)
        statuses: list[Status] = [Status.EXISTS if status is Status.OK else status for status in found]
        writes: dict[int, Write] = {}
        for at, item in enumerate(items):
            if statuses[at] is Status.ABSENT:
                if self._claim(item.size, deadline):
                    writes[at] = Write(self._names.of(item.key), item)
                else:
                    statuses[at] = Status.FULL
        try:
            written = self._exchange.run("put", list(writes.values()), self._pool, deadline)
            for at, status in zip(writes, written, strict=True):
                statuses[at] = status
        finally:
            self._settle([items[at] for at in writes], [statuses[at] for at in writes])
        return statuses

    def counters(self) -> dict[str, int]:
        with self._lock:
            return {"written_bytes": self._written}

    def _settle(self, items: Sequence[PutItem], statuses: Sequence[Status]) -> None:
        for item, status in zip(items, statuses, strict=True):
            self._known.settle(item.key, item.size, published=status.ok)
        with self._lock:
            self._written += sum(
                item.size for item, status in zip(items, statuses, strict=True) if status is Status.OK
            )

    def _claim(self, size: int, deadline: Deadline | None) -> bool:
        return size <= LARGEST_VALUE and claim(self._known, size, lambda keys: self._evict(keys, deadline))

    def _evict(self, keys: Sequence[str], deadline: Deadline | None) -> list[bool]:
        asks = [Ask(b"UNLINK", self._names.of(key)) for key in keys]
        statuses = self._exchange.run("evict", asks, self._pool, deadline)
        return [status in (Status.OK, Status.ABSENT) for status in statuses]
