"""The s3 tier: an object a blob."""

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
from sgkv.backends.remote.survey import Survey
from sgkv.backends.s3.address import locate
from sgkv.backends.s3.client import open_client, open_session, region_of
from sgkv.backends.s3.examination import Examination, Report
from sgkv.backends.s3.listing import Listing
from sgkv.backends.s3.objects import Objects, encryption_headers
from sgkv.backends.s3.opening import open_plane
from sgkv.backends.s3.options import S3Options
from sgkv.backends.s3.probing import Prober
from sgkv.backends.s3.reading import Batch
from sgkv.backends.s3.removal import Removal
from sgkv.backends.s3.writing import Writer
from sgkv.backends.workers import WorkerPool, in_background, spread_within

log = logging.getLogger(__name__)

_BACKLOG = 4
"""Waiting tasks a thread; past it a batch with a deadline is refused instead of queued."""
_CONTROL_ATTEMPTS = 3
_DRAIN_SECONDS = 5.0


class S3Backend(Backend):
    """Blobs as objects under one prefix, which a fleet may share.

    What is known of a key, and for how long, is `KnownKeys`' business: it is fed by every request and
    by a listing of the prefix now and then. Asking for keys it knows takes no request. Pins and the
    order of eviction are this process's own; without a `capacity` nothing is evicted, and the bucket's
    lifecycle rules bound it.
    """

    def __init__(
        self,
        options: S3Options,
        *,
        name: str = "s3",
        capacity: int | None = None,
        ttl: float | None = None,
        ours: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reaches for nothing yet but a first listing, in the background.

        `capacity` in bytes over all who use the prefix; None leaves the size to the bucket's lifecycle.
        `ttl` in seconds: older blobs are swept. Objects below the prefix whose keys are not `ours` are
        neither counted, evicted nor swept. An endpoint that cannot be reached is no error here.
        Raises ValueError for options that contradict themselves and for a profile that does not exist,
        OSError for certificate authorities that cannot be read.
        """
        if capacity is not None and capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        session = open_session(options)
        address = locate(options, region_of(session))
        self.name = name
        self.capabilities = Capabilities(
            persistent=True, shared=True, pins=capacity is not None, abandonable=True
        )
        self._options = options
        self._gate = Gate()
        self._faults = FaultLog(name)
        self._known = KnownKeys(
            capacity,
            most=options.known_keys,
            present_seconds=options.present_seconds,
            absent_seconds=options.absent_seconds,
            clock=clock,
        )
        control = open_client(session, options, attempts=_CONTROL_ATTEMPTS, connections=options.concurrency)
        plane = open_plane(session, options, address, control, self._faults)
        self._plane = plane
        self._address = address
        self._objects = Objects(plane, options, self._known, self._faults, directory=address.directory)
        self._writer = Writer(self._objects, self._known)
        self._listing = Listing(control, options.bucket, options.prefix, directory=address.directory)
        # Apart: large transfers must not keep existence checks waiting, which a scheduler waits for, nor
        # deletions, which come in the middle of reads; and these, partly boto3's, must hold no writer.
        self._probers = self._workers("probe", options.probes)
        self._readers = self._workers("read", options.concurrency)
        self._writers = self._workers("write", options.concurrency)
        self._removers = self._workers("remove", options.concurrency)
        self._prober = Prober(self._objects, self._known, self._probers, options.read_timeout)
        self._removal = Removal(
            self._objects,
            self._listing,
            self._known,
            self._faults,
            self._removers,
            lambda: self._gate.closed,
        )
        self._survey = Survey(
            self._listing,
            self._known,
            self._faults,
            pause=options.list_seconds,
            ttl=ttl,
            most=options.known_keys,
            ours=ours,
        )
        self._examiner = self._workers("examine", 1)
        if options.examine:
            in_background(self._examiner, self._introduce)

    def contains(self, keys: Sequence[str]) -> list[bool]:
        return self.probe(keys)[0]

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        """One round of requests, side by side, for the keys that nothing is known of."""
        with self._gate.passing() as admitted:
            if not admitted:
                return [False] * len(keys), Status.CLOSED
            return self._prober.probe(keys, deadline)

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        statuses = [Status.TIMEOUT] * len(items)

        def write(at: int) -> None:
            statuses[at] = self._writer.put(items[at], deadline)

        with self._gate.passing() as admitted:
            if not admitted:
                return [Status.CLOSED] * len(items)
            spread_within(self._writers, len(items), write, self._writers.threads, deadline)
            return list(statuses)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        with self._gate.passing() as admitted:
            if not admitted:
                return [Status.CLOSED] * len(items)
            batch = Batch(self._objects, items, deadline)
            spread_within(self._readers, batch.jobs, batch.run, self._readers.threads, deadline)
            statuses = list(batch.statuses)
        self._known.touch([item.key for item, status in zip(items, statuses, strict=True) if status.ok])
        return statuses

    def delete(self, keys: Sequence[str]) -> list[bool]:
        with self._gate.passing() as admitted:
            return self._removal.each(keys) if admitted else [False] * len(keys)

    def delete_prefix(self, prefix: str) -> bool:
        """List and remove, a thousand objects a request: not in constant time, S3 has nothing that is."""
        require_folder_prefix(prefix)
        with self._gate.passing() as admitted:
            return admitted and self._removal.empty(prefix)

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        """As the bucket lists them. Raises ConnectionError where that breaks off."""
        for page in self._listing.pages(prefix):
            if self._gate.closed:
                return
            yield from page.blobs

    def touch(self, keys: Sequence[str]) -> None:
        self._known.touch(keys)

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        """In this process's memory only: another that shares a prefix with a capacity may evict them."""
        return [not self._gate.closed and self._known.pin(key, pinned) for key in keys]

    def wait_listed(self, timeout: float) -> bool:
        """Wait until the first listing has ended; False after `timeout` seconds."""
        return self._survey.wait(timeout)

    def relist(self, timeout: float = 60.0) -> bool:
        """List, and sweep, now; False where that is not done within `timeout` seconds."""
        return self._survey.again(timeout)

    def examine(self) -> Report:
        """Find out by trying what the bucket can do; a few round trips. Never raises."""
        options, directory = self._options, self._address.directory
        sessions = directory and options.session_auth
        return Examination(
            self._plane,
            self._listing,
            options.prefix,
            {} if directory else encryption_headers(options),
            "by session" if sessions else "by signature",
        ).run()

    def stats(self) -> BackendStats:
        """Counters are requests by kind, bytes moved, retries, and errors by kind."""
        bounds = self._probers.bounds("probe") | self._readers.bounds("read")
        bounds |= self._writers.bounds("write") | self._removers.bounds("remove")
        return replace(self._known.stats(), bounds=bounds, counters=self._faults.counters())

    def close(self) -> None:
        ends = time.monotonic() + _DRAIN_SECONDS
        self._gate.close(_DRAIN_SECONDS)
        self._objects.close()
        for pool in (self._examiner, self._probers, self._readers, self._writers, self._removers):
            pool.close(max(0.0, ends - time.monotonic()))
        self._survey.close(max(0.0, ends - time.monotonic()))
        self._listing.close()

    def _introduce(self) -> None:
        """Say what the bucket can do, and do without what it cannot."""
        report = self.examine()
        if self._gate.closed:
            return
        log.log(logging.INFO if report.usable else logging.WARNING, "%s: %s", self.name, report)
        if report.usable and not report.able("conditional writes"):
            self._objects.conditional = False

    def _workers(self, what: str, threads: int) -> WorkerPool:
        return WorkerPool(threads, f"sgkv-{self.name}-{what}", backlog=_BACKLOG * threads)
