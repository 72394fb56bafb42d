"""Two tiers over one folder, as two engines on one machine have them."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgkv.backends.base import Status
from sgkv.backends.disk import scanner
from sgkv.backends.disk.index import DiskIndex
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.walk import Found, walk
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.backends.disks import ROOM, SIZE, Clock, Open, blob_path, bytes_below, files_below


def test_each_sees_what_the_other_publishes(open_disk: Open) -> None:
    one, two = open_disk(), open_disk()
    keys = fill(one, 6, SIZE)
    assert two.contains(keys) == [True] * 6
    assert get(two, keys[4], SIZE) == blob(SIZE, 4)
    assert put(two, keys[0], b"other") is Status.EXISTS
    assert two.stats().blobs == 6


def test_a_read_finds_what_no_lookup_asked_for(open_disk: Open) -> None:
    one, two = open_disk(), open_disk()
    key = fill(one, 1, SIZE)[0]
    assert get(two, key, SIZE) == blob(SIZE, 0)
    assert two.stats().used_bytes == SIZE


def test_a_lookup_stops_looking_after_four_absent_in_a_row(open_disk: Open) -> None:
    one, two = open_disk(), open_disk()
    fill(one, 12, SIZE)
    absent = [key_of(number) for number in range(100, 104)]
    assert two.contains([*absent[:3], key_of(0)]) == [False, False, False, True]
    assert two.contains([*absent, key_of(1), key_of(0)]) == [False] * 5 + [True]


def test_deleted_elsewhere_is_absent_here(open_disk: Open) -> None:
    one, two = open_disk(), open_disk()
    keys = fill(one, 3, SIZE)
    two.contains(keys)
    one.delete(keys[:1])
    assert get(two, keys[0], SIZE) is Status.ABSENT
    assert two.contains(keys) == [False, True, True]
    assert two.stats().used_bytes == 2 * SIZE
    assert put(two, keys[0], blob(SIZE, 9)) is Status.OK


def test_a_vanished_file_can_be_put_again(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    key = fill(disk, 1, SIZE)[0]
    blob_path(folder, key).unlink()
    assert put(disk, key, blob(SIZE, 5)) is Status.OK
    assert get(disk, key, SIZE) == blob(SIZE, 5)


def test_the_quota_is_for_both_together(open_disk: Open, folder: Path) -> None:
    one, two = open_disk(), open_disk()
    for turn in range(3 * ROOM):
        disk = one if turn % 2 else two
        assert disk.rescan()
        assert put(disk, key_of(turn), blob(SIZE)) is Status.OK
        assert bytes_below(folder / "blobs") <= ROOM * SIZE


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the next scan has been taken in."""
    event, real = threading.Event(), DiskIndex.load

    def load(index: DiskIndex, *args: Any) -> None:
        real(index, *args)
        event.set()

    monkeypatch.setattr(DiskIndex, "load", load)
    return event


def test_what_others_write_among_much_that_is_absent_is_found_after_half_a_minute(
    open_disk: Open, scanned: threading.Event
) -> None:
    """Also by a process that only reads; state of sliding windows lies far apart."""
    clock = Clock()
    one, two = open_disk(clock=clock), open_disk(clock=clock)
    keys = fill(two, 1, SIZE)
    absent = [key_of(number) for number in range(100, 110)]
    scanned.clear()
    assert one.contains([*absent, *keys]) == [False] * 11
    clock.now += 31
    one.contains([*absent, *keys])
    assert scanned.wait(10)
    assert one.contains([*absent, *keys]) == [False] * 10 + [True]


def test_what_others_write_is_counted_after_half_a_minute(open_disk: Open, scanned: threading.Event) -> None:
    clock = Clock()
    one, two = open_disk(clock=clock), open_disk(clock=clock)
    fill(two, 6, SIZE)
    scanned.clear()
    put(one, key_of(100), blob(SIZE))
    assert one.stats().blobs == 1
    clock.now += 31
    put(one, key_of(101), blob(SIZE))
    assert scanned.wait(10)
    assert one.stats().blobs == 8


def test_room_another_process_made_is_seen_before_evicting(open_disk: Open) -> None:
    clock = Clock()
    one, two = open_disk(clock=clock), open_disk(clock=clock)
    keys = fill(one, ROOM, SIZE)
    two.delete(keys[:8])
    clock.now += 31
    assert put(one, key_of(100), blob(SIZE)) is Status.OK
    assert one.stats().evicted_blobs == 0
    assert all(one.contains(keys[8:]))


def test_room_is_made_while_another_process_leads_the_eviction(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    fill(disk, ROOM, SIZE)
    fd = os.open(folder / "evict.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert put(disk, key_of(100), blob(SIZE)) is Status.OK
    finally:
        os.close(fd)
    assert disk.stats().evicted_blobs == 1
    assert len(files_below(folder / "blobs")) == ROOM


def test_the_leader_evicts_ahead_of_need(open_disk: Open) -> None:
    disk = open_disk(capacity=100 * 4096)
    fill(disk, 100, 4096)
    assert put(disk, key_of(1000), blob(4096)) is Status.OK
    assert disk.stats().evicted_blobs == 5


def test_what_is_deleted_while_a_scan_runs_does_not_come_back(
    open_disk: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan is held up by hand between finding the files and saying so."""
    disk = open_disk()
    keys = fill(disk, 3, SIZE)
    found, go_on = threading.Event(), threading.Event()

    def slow_walk(*args: Any, **options: Any) -> Iterator[Found]:
        blobs = list(walk(*args, **options))
        found.set()
        assert go_on.wait(20)
        yield from blobs

    monkeypatch.setattr(scanner, "walk", slow_walk)
    scan = threading.Thread(target=disk.rescan)
    scan.start()
    assert found.wait(10)
    disk.delete(keys[:2])
    go_on.set()
    scan.join(10)
    assert (disk.stats().blobs, disk.stats().used_bytes) == (1, SIZE)


def test_a_bad_file_goes_also_where_quarantine_was_removed(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    keys = fill(disk, 2, SIZE)
    (folder / "quarantine").rmdir()
    disk.quarantine(keys[:1])
    assert disk.contains(keys) == [False, True]
    assert [path.name for path in files_below(folder / "blobs")] == [Path(keys[1]).name]


def test_what_a_crash_left_in_quarantine_is_trimmed_at_the_next_start(open_disk: Open, folder: Path) -> None:
    (folder / "quarantine").mkdir(parents=True)
    for number in range(20):
        (folder / "quarantine" / f"{number:03d}.bad").write_bytes(b"bad")
    open_disk()
    assert len(files_below(folder / "quarantine")) == 16


def test_a_process_that_stays_cleans_up_after_one_that_died(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    mine = Path(Layout(str(folder)).temp_path()).name
    host, pid, start, number = mine.rsplit(".", 3)
    (folder / "tmp" / f"{host}.{pid}.{int(start) - 1}.{number}").write_bytes(b"half")
    assert disk.rescan(10)
    assert not files_below(folder / "tmp")


def test_bad_files_are_kept_for_a_look_but_not_many(open_disk: Open, folder: Path) -> None:
    disk = open_disk(capacity=100 * SIZE)
    keys = fill(disk, 20, SIZE)
    disk.quarantine([*keys, key_of(999)])
    assert disk.stats().blobs == 0
    assert disk.stats().counters["quarantined"] == 20
    kept = files_below(folder / "quarantine")
    assert len(kept) == 16
    assert all(any(path.name.endswith(key.replace("/", "~")) for path in kept) for key in keys[4:])
    assert not files_below(folder / "blobs")
