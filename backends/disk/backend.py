"""The disk tier: a file a blob."""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH108, PTH116

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from sgkv.backends import failpoints
from sgkv.backends.base import Backend, BackendStats, BlobInfo, Capabilities, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk.discard import Quarantine, Trash
from sgkv.backends.disk.faults import FaultLog
from sgkv.backends.disk.index import DiskIndex
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.reader import Reader, UseMarks
from sgkv.backends.disk.room import Room
from sgkv.backends.disk.scanner import Scanner
from sgkv.backends.disk.walk import walk
from sgkv.backends.disk.writer import Writer
from sgkv.backends.eviction import make_policy
from sgkv.backends.gate import Gate
from sgkv.backends.keygroups import Watcher, require_folder_prefix
from sgkv.backends.workers import WorkerPool, spread_within

_BACKLOG = 4
"""Waiting tasks a thread; past it a batch with a deadline is refused instead of queued."""
_FAILED_LOOKS = 4
"""Blobs of other processes are looked for until this many in a row were not there."""
_DRAIN_SECONDS = 5.0


class DiskBackend(Backend):
    """Blobs as files under one folder, which other processes and hosts may share.

    What this process does not know is looked up in the folder: every unknown key while the start
    scan runs; afterwards until four in a row were absent, so that a lookup of a long chain that
    nobody wrote stays cheap. A doubt is a miss. Pins bind only the process that set them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        capacity: int,
        *,
        name: str = "disk",
        io_threads: int | None = None,
        min_free_bytes: int | None = None,
        fsync: Literal["none", "data"] = "none",
        eviction: str = "lru",
        marks_use: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open or create `path`; a background thread reads what is there.

        `capacity` in bytes, over all processes that use the folder. `min_free_bytes` stay free on
        the file system; None is 2 GiB or 2 % of it, whichever is less. `fsync="data"` makes blobs
        survive a power cut; without it they survive the process, and what a power cut damages
        readers find out by their checksums. `marks_use=False` leaves the files' times alone, by which
        every process orders evictions: for reads that are no use. A folder that cannot be made is no
        error here: puts then answer `Status.ERROR` and the rest finds nothing.
        """
        if capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        if fsync not in ("none", "data"):
            raise ValueError(f"fsync must be 'none' or 'data', got {fsync!r}")
        self.name = name
        self.capabilities = Capabilities(
            local_index=True, persistent=True, shared=True, pins=True, abandonable=True
        )
        cpus = os.cpu_count() or 1
        threads = io_threads or min(4, cpus)
        self._copy_threads = 1 if cpus <= 2 else min(threads, max(2, cpus // 4))
        # Without fsync a write is a copy into the page cache, too: more threads only contend there.
        write_threads = self._copy_threads if fsync == "none" else threads
        self._gate = Gate()
        self._layout = Layout(os.fspath(path))
        self._index = DiskIndex(capacity, make_policy(eviction))
        self._faults = FaultLog(name, self._index)
        self._create()
        self._scanner = Scanner(self._layout, self._index, name, clock)
        self._trash = Trash(self._layout, name)
        self._room = Room(self._layout, self._index, self._scanner, min_free_bytes, clock)
        marks = UseMarks(clock)
        self._writer = Writer(
            self._layout, self._index, self._room, self._faults, marks, sync=fsync == "data"
        )
        self._reader = Reader(self._index, self._faults, marks if marks_use else None)
        self._quarantine = Quarantine(self._layout)
        self._readers = WorkerPool(threads, f"sgkv-{name}-read", backlog=_BACKLOG * threads)
        # Apart: a disk that throttles writers must not keep readers from the page cache.
        self._writers = WorkerPool(write_threads, f"sgkv-{name}-write", backlog=_BACKLOG * write_threads)

    def contains(self, keys: Sequence[str]) -> list[bool]:
        if self._gate.closed:
            return [False] * len(keys)
        scanned = self._scanner.complete  # as of before the index was asked, which may be filled meanwhile
        found = list(map(self._index.sizes.__contains__, keys))
        if not all(found):
            self._look(keys, found, every=not scanned)
            self._scanner.refresh_soon()
        return found

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        paths = [self._layout.path_of(item.key) for item in items]
        statuses = [Status.TIMEOUT] * len(items)

        def write(at: int) -> None:
            statuses[at] = self._writer.put(items[at], paths[at], deadline)

        with self._gate.passing() as admitted:
            if not admitted:
                return [Status.CLOSED] * len(items)
            self._scanner.refresh_soon()
            spread_within(self._writers, len(items), write, self._writers.threads, deadline)
            return list(statuses)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        paths = [self._layout.path_of(item.key) for item in items]
        statuses = [Status.TIMEOUT] * len(items)
        waiting: list[int] = []

        def read_resident(at: int) -> None:
            status = self._reader.resident(items[at], paths[at], deadline)
            if status is None:
                waiting.append(at)
            else:
                statuses[at] = status

        def read(nth: int) -> None:
            at = waiting[nth]
            statuses[at] = self._reader.get(items[at], paths[at], deadline)

        with self._gate.passing() as admitted:
            if not admitted:
                return [Status.CLOSED] * len(items)
            spread_within(self._readers, len(items), read_resident, self._copy_threads, deadline)
            spread_within(self._readers, len(waiting), read, self._readers.threads, deadline)
        read_now = zip(items, list(statuses), strict=True)
        self._index.touch([item.key for item, status in read_now if status is Status.OK])
        return list(statuses)

    def delete(self, keys: Sequence[str]) -> list[bool]:
        paths = [self._layout.path_of(key) for key in keys]
        with self._gate.passing() as admitted:
            if not admitted:
                return [False] * len(keys)
            self._index.forget(keys)
            failpoints.passing("delete.forgotten")
            return [self._unlink(path) for path in paths]

    def delete_prefix(self, prefix: str) -> bool:
        require_folder_prefix(prefix)
        folder = self._layout.path_of(prefix[:-1])
        with self._gate.passing() as admitted:
            if not admitted:
                return False
            failpoints.passing("prefix.begun")
            try:
                if os.path.lexists(folder):
                    self._trash.drop(folder)
            except OSError as error:
                self._faults.note("delete_prefix", error)
                return False
            self._index.forget(self._index.under(prefix))
            failpoints.passing("prefix.forgotten")
        return True

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            self._layout.path_of(folder)
        for blob in walk(self._layout, folder, lambda: self._gate.closed):
            if blob.key.startswith(prefix):
                yield BlobInfo(blob.key, blob.size, blob.modified)

    def touch(self, keys: Sequence[str]) -> None:
        self._index.reorder(keys)

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        """In this process's memory only: another process that shares the folder may evict them."""
        return [not self._gate.closed and self._index.pin(key, pinned) for key in keys]

    def watch(self, watcher: Watcher | None) -> list[str]:
        """What a start scan has not found yet is told of as it is found."""
        return self._index.watch(watcher)

    def quarantine(self, keys: Sequence[str]) -> None:
        """Take bad blobs out of service; the last few files stay in `quarantine/` for a look."""
        self._index.forget(keys)
        failpoints.passing("quarantine.forgotten")
        self._index.count("quarantined", sum(map(self._set_aside, keys)))

    def wait_scanned(self, timeout: float) -> bool:
        """Wait until the index knows what earlier processes left; False after `timeout` seconds."""
        return self._scanner.wait(timeout)

    def wait_emptied(self, timeout: float) -> bool:
        """Wait until the space of dropped prefixes is back; False after `timeout` seconds."""
        return self._trash.wait(timeout)

    def rescan(self, timeout: float = 60.0) -> bool:
        """Bring the index in line with the folder now, which otherwise happens every half minute.

        False where that is not done within `timeout` seconds.
        """
        return self._scanner.scan(timeout)

    def stats(self) -> BackendStats:
        bounds = self._readers.bounds("read") | self._writers.bounds("write")
        return replace(
            self._index.stats(),
            bounds=bounds | self._scanner.pool.bounds("scan") | self._trash.pool.bounds("trash"),
        )

    def close(self) -> None:
        self._scanner.stop()  # first: a put may be waiting for it
        ends = time.monotonic() + _DRAIN_SECONDS
        self._gate.close(_DRAIN_SECONDS)
        self._readers.close(max(0.0, ends - time.monotonic()))
        self._writers.close(max(0.0, ends - time.monotonic()))
        self._scanner.close(max(0.0, ends - time.monotonic()))
        self._trash.close(max(0.0, ends - time.monotonic()))

    def _create(self) -> None:
        try:
            self._layout.create()
        except OSError as error:
            self._faults.note("open", error)

    def _look(self, keys: Sequence[str], found: list[bool], *, every: bool) -> None:
        failed = 0
        for at, key in enumerate(keys):
            if found[at]:
                failed = 0
            elif failed < _FAILED_LOOKS or every:
                found[at] = self._is_there(key)
                failed = 0 if found[at] else failed + 1

    def _is_there(self, key: str) -> bool:
        try:
            info = os.stat(self._layout.path_of(key))
        except OSError:
            return False
        if not stat.S_ISREG(info.st_mode):
            return False
        self._index.add(key, info.st_size)
        return True

    def _unlink(self, path: str) -> bool:
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self._faults.note("delete", error)
            return False
        failpoints.passing("delete.unlinked")
        return True

    def _set_aside(self, key: str) -> bool:
        try:
            return self._quarantine.take(key)
        except OSError as error:
            self._faults.note("quarantine", error)
            return False
