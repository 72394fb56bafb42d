"""The valkey tier: a key a blob."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sgkv.backends.base import Backend, BackendStats, BlobInfo, Capabilities, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.gate import Gate
from sgkv.backends.keygroups import require_folder_prefix
from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.remote.listing import DELETE_BATCH
from sgkv.backends.remote.rounds import Rounds
from sgkv.backends.remote.survey import Survey
from sgkv.backends.valkey.dialling import Dialler
from sgkv.backends.valkey.exchange import Exchange
from sgkv.backends.valkey.figures import Figures, look
from sgkv.backends.valkey.listing import Keyspace
from sgkv.backends.valkey.names import Names
from sgkv.backends.valkey.options import ValkeyOptions
from sgkv.backends.valkey.publishing import Publisher
from sgkv.backends.valkey.reading import Read
from sgkv.backends.valkey.requests import Ask
from sgkv.backends.valkey.servers import Servers
from sgkv.backends.valkey.topology import Alone, Slots, Topology, of_each
from sgkv.backends.workers import WorkerPool

log = logging.getLogger(__name__)

_BACKLOG = 4
"""Waiting tasks a thread; past it a batch with a deadline is refused instead of queued."""
_DRAIN_SECONDS = 5.0
_REMEMBERED = 100_000
_ANSWERED = frozenset({Status.OK, Status.ABSENT})


class ValkeyBackend(Backend):
    """Blobs as keys of one server or of a cluster, which a fleet may share.

    Nothing is remembered of keys: whether they are there is asked each time, in one round trip. Without a
    `capacity` the servers' own memory limit and eviction bound the tier, and its gauges are theirs, as of
    the last look; with one, the tier counts by listings and evicts in its own order, and pins hold, as far
    as this process knows.
    """

    def __init__(
        self,
        options: ValkeyOptions,
        *,
        name: str = "valkey",
        capacity: int | None = None,
        ours: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reaches for nothing yet but a first look at the servers, in the background.

        `capacity` in bytes of blobs over all who use the prefix. Keys below the prefix that are not `ours`
        are neither counted nor evicted. A server that cannot be reached is no error here. Raises ValueError
        for a capacity that is not positive.
        """
        if capacity is not None and capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        self.name = name
        self.capabilities = Capabilities(
            whole_chains=True, persistent=True, shared=True, pins=capacity is not None, abandonable=True
        )
        self._options = options
        self._names = Names(options.prefix)
        self._capacity = capacity
        self._gate = Gate()
        self._faults = FaultLog(name)
        self._figures = Figures()
        self._said = False
        # Without a capacity nothing is counted, so nothing has to be remembered; with one, what went lately,
        # which a listing under way may still show.
        most = 0 if capacity is None else _REMEMBERED
        self._known = KnownKeys(capacity, most=most, present_seconds=0.0, absent_seconds=0.0, clock=clock)
        dialler = Dialler(options)
        self._control = dialler.control
        self._servers = Servers(dialler.dial, 2 * options.connections + 2)
        self._watch = Rounds(self._look, pause=options.watch_seconds, name=f"sgkv-{name}-watch")
        self._topology: Topology = Alone(options.address)
        if options.cluster:
            patience = options.connect_timeout + options.read_timeout
            self._topology = Slots(options.address, self._control, self._watch.ask, patience)
        self._exchange = Exchange(self._servers, self._topology, self._faults)
        # Apart: large transfers must not keep existence checks waiting, which a scheduler waits for.
        self._probers = self._workers("probe")
        self._readers = self._workers("read")
        self._writers = self._workers("write")
        self._keyspace = Keyspace(self._topology, self._control, self._exchange, self._names, self._writers)
        self._publisher = Publisher(self._exchange, self._known, self._writers, self._names)
        self._watch.start()
        self._survey = Survey(
            self._keyspace,
            self._known,
            self._faults,
            pause=None if capacity is None else options.list_seconds,
            ttl=None,
            most=most,
            ours=ours,
        )

    def contains(self, keys: Sequence[str]) -> list[bool]:
        return self.probe(keys)[0]

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        """One round trip to each server that has some of the keys, side by side."""
        with self._gate.passing() as admitted:
            if not admitted:
                return [False] * len(keys), Status.CLOSED
            # Of its own: a probe fills no buffers, and must not end what else its caller's deadline is for.
            left = None if deadline is None else deadline.remaining()
            own = Deadline(self._options.read_timeout if left is None else left)
            statuses = self._each("exists", b"EXISTS", keys, own)
        failure = next((status for status in statuses if status not in _ANSWERED), Status.OK)
        return [status is Status.OK for status in statuses], failure

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        with self._gate.passing() as admitted:
            if not admitted:
                return [Status.CLOSED] * len(items)
            return self._publisher.put(items, deadline)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        with self._gate.passing() as admitted:
            if not admitted:
                return [Status.CLOSED] * len(items)
            if deadline is not None and deadline.over:
                return [Status.TIMEOUT] * len(items)
            reads = [Read(self._names.of(item.key), item) for item in items]
            statuses = self._exchange.run("get", reads, self._readers, deadline)
        self._known.miss(read.key for read in reads if read.status is Status.ABSENT)
        self._known.touch([read.key for read in reads if read.status is Status.OK])
        self._faults.count("read_bytes", sum(read.size for read in reads if read.status is Status.OK))
        return statuses

    def delete(self, keys: Sequence[str]) -> list[bool]:
        with self._gate.passing() as admitted:
            if not admitted:
                return [False] * len(keys)
            statuses = self._each("delete", b"UNLINK", keys, Deadline(self._options.read_timeout))
        self._known.miss(key for key, status in zip(keys, statuses, strict=True) if status in _ANSWERED)
        return [status is Status.OK for status in statuses]

    def delete_prefix(self, prefix: str) -> bool:
        """List and remove, page by page: not in constant time, the protocol has nothing that is."""
        require_folder_prefix(prefix)
        with self._gate.passing() as admitted:
            return admitted and self._empty(prefix)

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        """As the servers list them: a blob may come twice. Raises ConnectionError where that breaks off."""
        for page in self._keyspace.pages(prefix):
            if self._gate.closed:
                return
            yield from page.blobs

    def touch(self, keys: Sequence[str]) -> None:
        """In the order of whoever evicts: the tier's own, or the servers'."""
        with self._gate.passing() as admitted:
            if admitted and self._capacity is None:
                self._each("touch", b"TOUCH", keys, Deadline(self._options.read_timeout))
            elif admitted:
                self._known.touch(keys)

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        """In this process's memory only: another that shares a prefix with a capacity may evict them."""
        return [not self._gate.closed and self._known.pin(key, pinned) for key in keys]

    def wait_seen(self, timeout: float) -> bool:
        """Wait for the first look at the servers, and listing where that counts; False after `timeout` s."""
        ends = time.monotonic() + timeout
        return self._watch.wait(timeout) and (
            self._capacity is None or self._survey.wait(max(0.0, ends - time.monotonic()))
        )

    def look_again(self, timeout: float = 60.0) -> bool:
        """Look at the servers, and list, now; False where that is not done within `timeout` seconds."""
        ends = time.monotonic() + timeout
        return self._watch.again(timeout) and (
            self._capacity is None or self._survey.again(max(0.0, ends - time.monotonic()))
        )

    def stats(self) -> BackendStats:
        """Counters are bytes moved and failures by kind; states are figures of the servers."""
        stats = self._figures.as_stats() if self._capacity is None else self._known.stats()
        bounds = self._probers.bounds("probe") | self._readers.bounds("read")
        return replace(
            stats,
            bounds=bounds | self._writers.bounds("write"),
            counters=self._faults.counters() | self._publisher.counters(),
            states=self._figures.states(),
        )

    def close(self) -> None:
        ends = time.monotonic() + _DRAIN_SECONDS
        self._gate.close(_DRAIN_SECONDS)
        for pool in (self._probers, self._readers, self._writers):
            pool.close(max(0.0, ends - time.monotonic()))
        self._watch.close(max(0.0, ends - time.monotonic()))
        self._survey.close(max(0.0, ends - time.monotonic()))
        self._servers.close()

    def _each(self, op: str, verb: bytes, keys: Sequence[str], deadline: Deadline) -> list[Status]:
        requests = [Ask(verb, self._names.of(key)) for key in keys]
        return self._exchange.run(op, requests, self._probers, deadline)

    def _empty(self, prefix: str) -> bool:
        try:
            for page in self._keyspace.pages(prefix):
                if self._gate.closed:
                    return False
                keys = [blob.key for blob in page.blobs]
                for start in range(0, len(keys), DELETE_BATCH):
                    self._keyspace.remove(keys[start : start + DELETE_BATCH])
        except ConnectionError as error:
            self._faults.note("delete_prefix", "list", str(error))
            return False
        self._known.miss_under(prefix)
        return True

    def _look(self) -> None:
        """Where keys are, and how full servers are; what is odd about them is said once."""
        try:
            self._topology.load()
            seen = look(of_each(self._topology), self._control, self._options, self._capacity)
        except ConnectionError as error:
            self._faults.note("look", "look", str(error))
            return
        self._figures = seen.figures
        if not self._said:
            self._said = True
            for line in seen.descriptions:
                log.info("%s: %s", self.name, line)
            for line in seen.doubts:
                log.warning("%s: %s", self.name, line)

    def _workers(self, what: str) -> WorkerPool:
        threads = self._options.connections
        return WorkerPool(threads, f"sgkv-{self.name}-{what}", backlog=_BACKLOG * threads)
