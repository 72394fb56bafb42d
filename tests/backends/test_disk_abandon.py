"""A device that hangs: the caller goes on, with its buffers its own again.

No device that hangs on request can be had in a test. Opening is made to hang by a FIFO in place of
a blob, which is the real thing; reads and writes by replacing the system call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.backends.disks import SIZE, Open, blob_path, files_below


class HungCall:
    """Stands in for a system call; hangs until let go, then does what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.real = getattr(os, name)
        self.began, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: object) -> object:
        if args[-1] == os.RWF_NOWAIT:
            raise BlockingIOError  # nothing is in the page cache
        self.began.set()
        assert self.go_on.wait(20)
        try:
            return self.real(*args)
        finally:
            self.ended.set()


@pytest.fixture
def disk(open_disk: Open) -> DiskBackend:
    return open_disk(io_threads=2)


@pytest.fixture
def stuck_key(disk: DiskBackend, folder: Path) -> Iterator[str]:
    """A key whose file cannot be opened until someone writes to it."""
    path = blob_path(folder, "n/c/stuck")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    yield "n/c/stuck"
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def test_a_batch_returns_when_its_time_is_up(disk: DiskBackend, stuck_key: str) -> None:
    keys = fill(disk, 2, SIZE)
    buffers = [bytearray(SIZE) for _ in range(3)]
    order = [keys[0], stuck_key, keys[1]]
    items = [GetItem(key, [Part(0, memoryview(b))]) for key, b in zip(order, buffers, strict=True)]
    began = time.monotonic()
    statuses = disk.get(items, Deadline(0.3))
    assert time.monotonic() - began < 5
    assert statuses[1] is Status.TIMEOUT
    assert statuses[0] is Status.OK


def test_a_hung_read_never_touches_the_buffers_it_was_given(
    disk: DiskBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = fill(disk, 1, SIZE)[0]
    hung = HungCall(monkeypatch, "preadv")
    into, checked = bytearray(SIZE), threading.Event()

    def check() -> bool:
        checked.set()
        return True

    item = GetItem(key, [Part(0, memoryview(into))], check)
    assert disk.get([item], Deadline(0.2)) == [Status.TIMEOUT]
    assert hung.began.is_set()
    hung.go_on.set()
    assert hung.ended.wait(10)
    disk.close()
    assert into == bytes(SIZE)
    assert not checked.is_set()


def test_what_the_page_cache_lacks_still_arrives_in_time(
    disk: DiskBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = blob((5 << 20) // 2)
    big = open_big(disk, data)
    hung = HungCall(monkeypatch, "preadv")
    hung.go_on.set()
    assert get(big, key_of(1), len(data), Deadline(20.0)) == data
    assert get(big, key_of(1), len(data)) == data
    assert get(big, key_of(1), len(data) + 1, Deadline(20.0)) is Status.SHORT
    big.close()


def open_big(disk: DiskBackend, data: bytes) -> DiskBackend:
    big = DiskBackend(disk._layout.root + "-big", 64 << 20, min_free_bytes=0)
    assert put(big, key_of(1), data) is Status.OK
    return big


def test_a_hung_write_is_never_published(
    disk: DiskBackend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = HungCall(monkeypatch, "pwritev")
    pages = bytearray(blob(SIZE))
    item = PutItem(key_of(1), [memoryview(pages)])
    assert disk.put([item], Deadline(0.2)) == [Status.TIMEOUT]
    pages[:] = bytes(SIZE)  # the caller reuses its memory
    hung.go_on.set()
    assert hung.ended.wait(10)
    disk.close()
    assert not files_below(folder)
    assert disk.stats().used_bytes == 0


def test_when_every_thread_hangs_callers_are_refused_not_queued(disk: DiskBackend, stuck_key: str) -> None:
    key = fill(disk, 1, SIZE)[0]
    for _ in range(2):
        assert get(disk, stuck_key, 1, Deadline(0.1)) is Status.TIMEOUT
    began = time.monotonic()
    statuses = [get(disk, key, SIZE, Deadline(0.05)) for _ in range(30)]
    assert set(statuses) == {Status.TIMEOUT}
    assert time.monotonic() - began < 10
    assert get(disk, key, SIZE) == blob(SIZE, 0), "without a deadline the caller's own thread reads"


def test_threads_that_come_back_serve_again(disk: DiskBackend, stuck_key: str, folder: Path) -> None:
    key = fill(disk, 1, SIZE)[0]
    for _ in range(2):
        assert get(disk, stuck_key, 1, Deadline(0.1)) is Status.TIMEOUT
    fd = os.open(blob_path(folder, stuck_key), os.O_RDWR | os.O_NONBLOCK)
    assert get(disk, key, SIZE, Deadline(20.0)) == blob(SIZE, 0)
    os.close(fd)


def test_reads_do_not_wait_for_writes(open_disk: Open) -> None:
    """A disk that throttles writers still has what is in the page cache, and lookups need it now."""
    disk = open_disk(io_threads=1)
    key = fill(disk, 1, SIZE)[0]
    began, go_on = threading.Event(), threading.Event()

    def stuck() -> None:
        began.set()
        assert go_on.wait(20)

    slow = PutItem(key_of(100), [memoryview(blob(SIZE))], stuck)
    writer = threading.Thread(target=disk.put, args=([slow], Deadline(20)))
    writer.start()
    assert began.wait(20)
    assert get(disk, key, SIZE, Deadline(5)) == blob(SIZE, 0)
    go_on.set()
    writer.join()
