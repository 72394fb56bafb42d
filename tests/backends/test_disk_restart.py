"""What a new process makes of the folder an earlier one left, however that ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import Status
from sgkv.backends.disk import DiskBackend, scanner
from sgkv.backends.disk.layout import Layout
from sgkv.backends.disk.walk import walk
from tests.backends.blobs import NAMESPACE, blob, fill, get, key_of, put
from tests.backends.disks import ROOM, SIZE, Clock, Open, age, blob_path, bytes_below, files_below


def test_what_was_published_is_there_again(open_disk: Open) -> None:
    first = open_disk()
    keys = fill(first, 5, SIZE)
    first.close()
    again = open_disk()
    assert all(again.contains(keys))
    assert get(again, keys[3], SIZE) == blob(SIZE, 3)
    assert (again.stats().blobs, again.stats().used_bytes) == (5, 5 * SIZE)


def test_the_quota_counts_what_is_found(open_disk: Open, folder: Path) -> None:
    first = open_disk()
    fill(first, ROOM, SIZE)
    first.close()
    again = open_disk()
    for number in range(100, 100 + ROOM // 2):
        assert put(again, key_of(number), blob(SIZE)) is Status.OK
    assert bytes_below(folder / "blobs") <= ROOM * SIZE
    assert again.stats().blobs == len(files_below(folder / "blobs"))


def test_a_smaller_capacity_after_restart_holds_from_the_next_put(open_disk: Open, folder: Path) -> None:
    first = open_disk()
    fill(first, ROOM, SIZE)
    first.close()
    again = open_disk(capacity=4 * SIZE)
    assert put(again, key_of(100), blob(SIZE)) is Status.OK
    assert bytes_below(folder / "blobs") <= 4 * SIZE


def test_the_order_of_use_survives(open_disk: Open, folder: Path) -> None:
    first = open_disk()
    keys = fill(first, ROOM, SIZE)
    for number, key in enumerate(keys):
        age(blob_path(folder, key), 1000 - number)
    get(first, keys[0], SIZE)
    first.close()
    again = open_disk()
    put(again, key_of(100), blob(SIZE))
    assert again.contains(keys[:3]) == [True, False, True]


def test_a_reader_that_is_no_use_leaves_the_files_times_alone(open_disk: Open, folder: Path) -> None:
    key = fill(open_disk(), 1, SIZE)[0]
    age(blob_path(folder, key), 3600)
    before = blob_path(folder, key).stat().st_mtime
    assert get(open_disk(marks_use=False), key, SIZE) == blob(SIZE, 0)
    assert blob_path(folder, key).stat().st_mtime == before


def test_a_use_is_marked_on_disk_at_most_once_a_minute(open_disk: Open, folder: Path) -> None:
    clock = Clock()
    disk = open_disk(clock=clock)
    key = fill(disk, 1, SIZE)[0]
    path = blob_path(folder, key)

    def used_again() -> bool:
        age(path, 5000)
        before = path.stat().st_mtime
        get(disk, key, SIZE)
        return path.stat().st_mtime > before

    assert not used_again(), "it was written in this minute, which is a use"
    clock.now += 61
    assert used_again()
    assert not used_again()


def test_traffic_goes_on_while_the_folder_is_read(
    open_disk: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan is held up by hand: no folder a test can afford takes long enough to read."""
    first = open_disk()
    keys = fill(first, 8, SIZE)
    first.close()
    go_on, unhindered = threading.Event(), walk

    def slow_walk(*args: object, **options: object) -> object:
        assert go_on.wait(20)
        return unhindered(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(scanner, "walk", slow_walk)
    disk = DiskBackend(folder, ROOM * SIZE, min_free_bytes=0)
    assert not disk.wait_scanned(0)
    unknown = [key_of(number) for number in range(100, 110)]
    assert disk.contains([*unknown, *keys]) == [False] * 10 + [True] * 8
    assert get(disk, keys[0], SIZE) == blob(SIZE, 0)
    assert put(disk, keys[1], b"other") is Status.EXISTS
    assert put(disk, key_of(100), blob(SIZE)) is Status.OK
    go_on.set()
    assert disk.wait_scanned(10)
    assert disk.stats().used_bytes == 9 * SIZE
    disk.close()


class ScanEndsMeanwhile(list[str]):
    """Keys that are all looked at once before the scan is done, and again afterwards."""

    def __init__(self, keys: Iterable[str], go_on: threading.Event, disk: DiskBackend) -> None:
        super().__init__(keys)
        self._go_on, self._disk = go_on, disk

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        self._go_on.set()
        assert self._disk.wait_scanned(10)


def test_a_lookup_during_which_the_scan_ends_misses_nothing(
    open_disk: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_disk()
    keys = fill(first, 2, SIZE)
    first.close()
    go_on, unhindered = threading.Event(), walk

    def slow_walk(*args: object, **options: object) -> object:
        assert go_on.wait(20)
        return unhindered(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(scanner, "walk", slow_walk)
    disk = DiskBackend(folder, ROOM * SIZE, min_free_bytes=0)
    unknown = [key_of(number) for number in range(100, 110)]
    asked = ScanEndsMeanwhile([*unknown, *keys], go_on, disk)
    assert disk.contains(asked) == [False] * 10 + [True] * 2
    disk.close()


WRITER = """
import sys, threading
from sgkv.backends.base import PutItem
from sgkv.backends.disk import DiskBackend
disk = DiskBackend(sys.argv[1], 1 << 30, min_free_bytes=0)
def stop():
    print("writing", flush=True)
    threading.Event().wait()
disk.put([PutItem("n/c/0/whole", [memoryview(b"whole" * 1000)])])
disk.put([PutItem("n/c/0/half", [memoryview(b"half" * 1000)], stop)])
"""


def test_a_writer_killed_half_way_leaves_nothing_readable(open_disk: Open, folder: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    alive = open_disk()
    assert len(files_below(folder / "tmp")) == 1, "the file of a running writer was taken away"
    assert alive.contains(["n/c/0/whole", "n/c/0/half"]) == [True, False]
    writer.kill()
    writer.wait(10)
    writer.stdout.close()
    again = open_disk()
    assert not files_below(folder / "tmp")
    assert again.contains(["n/c/0/whole", "n/c/0/half"]) == [True, False]
    assert again.stats().used_bytes == 8192


def test_temporary_files_of_other_hosts_are_given_an_hour(open_disk: Open, folder: Path) -> None:
    (folder / "tmp").mkdir(parents=True)
    for name in ("elsewhere-1.2.3.4", "elsewhere-1.2.3.5", "whatever"):
        (folder / "tmp" / name).write_bytes(b"half")
    age(folder / "tmp" / "elsewhere-1.2.3.4", 3700)
    age(folder / "tmp" / "whatever", 3700)
    open_disk()
    assert [path.name for path in files_below(folder / "tmp")] == ["elsewhere-1.2.3.5"]


def test_a_reused_process_id_does_not_protect_leftovers(open_disk: Open, folder: Path) -> None:
    mine = Path(Layout(str(folder)).temp_path()).name
    host, pid, start, number = mine.rsplit(".", 3)
    (folder / "tmp").mkdir(parents=True)
    (folder / "tmp" / f"{host}.{pid}.{int(start) - 1}.{number}").write_bytes(b"of an earlier process")
    (folder / "tmp" / mine).write_bytes(b"of this process")
    open_disk()
    assert [path.name for path in files_below(folder / "tmp")] == [mine]


def test_trash_of_an_earlier_process_is_deleted(open_disk: Open, folder: Path) -> None:
    left = folder / "trash" / "1.2.3" / "c" / "00"
    left.mkdir(parents=True)
    (left / "blob").write_bytes(b"dropped")
    assert open_disk().wait_emptied(10)
    assert not list((folder / "trash").iterdir())


def test_a_dropped_prefix_stays_dropped_and_its_space_comes_back(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    fill(disk, 8, SIZE)
    put(disk, "other/c/0/1", b"stays")
    disk.delete_prefix(f"{NAMESPACE}/")
    assert disk.stats().used_bytes == 4096
    assert disk.wait_emptied(10)
    assert not files_below(folder / "trash")
    disk.close()
    assert open_disk().stats().blobs == 1


def test_files_that_no_key_can_name_are_left_alone(open_disk: Open, folder: Path) -> None:
    blob_path(folder, "n/c").mkdir(parents=True)
    blob_path(folder, "n/c/.hidden").write_bytes(b"x")
    blob_path(folder, "n/c/with space").write_bytes(b"x")
    os.mkfifo(blob_path(folder, "n/c/fifo"))
    blob_path(folder, "n/c/link").symlink_to("/etc/passwd")
    disk = open_disk()
    assert disk.stats().blobs == 0
    assert disk.contains(["n/c/fifo"]) == [False]


def test_evicted_namespaces_leave_no_folders(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    fill(disk, ROOM, SIZE)
    for number in range(2 * ROOM):
        put(disk, f"next/c/0/{number}", blob(SIZE))
    assert [path.name for path in (folder / "blobs").iterdir()] == ["next"]
