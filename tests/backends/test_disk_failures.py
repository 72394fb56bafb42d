"""Disks that refuse, are full, or go away: a status, never an exception, and nothing left over."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import Status
from sgkv.backends.disk import DiskBackend
from sgkv.backends.disk.layout import is_key
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.backends.disks import ROOM, SIZE, Clock, Open, blob_path, files_below


@pytest.mark.parametrize(
    "key",
    [
        *(
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/..",
            "../a",
            "a/./b",
            ".a",
            "a/.b",
            "a\0b",
            "a b",
            "a\n",
            "ä",
        ),
        *("a" * 201, "/".join(["a" * 100] * 11)),
    ],
)
def test_a_key_that_is_no_safe_path_is_a_programming_error(open_disk: Open, key: str) -> None:
    disk = open_disk()
    assert not is_key(key)
    for call in (lambda: put(disk, key, b"x"), lambda: get(disk, key, 1), lambda: disk.delete([key])):
        with pytest.raises(ValueError, match="not a blob key"):
            call()


@pytest.mark.parametrize("key", ["a", "A-b_c.d=e+f@g,h", "0/1/2", key_of(1), "_x", "a..b"])
def test_keys_that_are_safe(open_disk: Open, key: str) -> None:
    disk = open_disk()
    assert put(disk, key, b"x") is Status.OK
    assert get(disk, key, 1) == b"x"


@pytest.mark.parametrize("prefix", ["", "a", "/", "../", "a/../"])
def test_a_prefix_that_is_no_folder_is_a_programming_error(open_disk: Open, prefix: str) -> None:
    with pytest.raises(ValueError):
        open_disk().delete_prefix(prefix)


def test_a_capacity_or_fsync_that_makes_no_sense_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="capacity must be positive"):
        DiskBackend(folder, 0)
    with pytest.raises(ValueError, match="fsync must be"):
        DiskBackend(folder, 1, fsync="always")  # type: ignore[arg-type]


def test_blobs_survive_with_fsync_too(open_disk: Open) -> None:
    disk = open_disk(fsync="data")
    key = fill(disk, 1, SIZE)[0]
    assert get(disk, key, SIZE) == blob(SIZE, 0)


def test_with_fsync_the_name_lasts_as_well_as_the_bytes(
    open_disk: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power cannot be cut here: what is asked of the system, and when, is what can be seen."""
    asked: list[tuple[str, str, bool]] = []
    key = key_of(1)

    def recorded(name: str) -> Callable[[int], None]:
        real = getattr(os, name)

        def call(fd: int) -> None:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            asked.append((name, str(path.parent if name == "fdatasync" else path), path_of_blob.exists()))
            real(fd)

        return call

    path_of_blob = blob_path(folder, key)
    disk = open_disk(fsync="data")
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, recorded(name))
    assert put(disk, key, blob(SIZE)) is Status.OK
    assert asked == [
        ("fdatasync", str(folder / "tmp"), False),
        ("fsync", str(path_of_blob.parent), True),
    ]


def test_a_file_in_place_of_the_folder(open_disk: Open, folder: Path) -> None:
    folder.write_bytes(b"not a folder")
    disk = open_disk()
    assert put(disk, key_of(1), b"x") is Status.ERROR
    assert get(disk, key_of(1), 1) is Status.ABSENT
    assert disk.contains([key_of(1)]) == [False]
    assert not list(disk.scan())
    disk.delete_prefix("any/")
    disk.quarantine([key_of(1)])
    assert disk.stats().counters["io_errors"] >= 1
    assert disk.stats().used_bytes == 0


def test_a_vanished_folder_is_made_again(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    keys = fill(disk, 3, SIZE)
    shutil.rmtree(folder)
    assert get(disk, keys[0], SIZE) is Status.ABSENT
    assert put(disk, key_of(100), blob(SIZE)) is Status.OK
    assert get(disk, key_of(100), SIZE) == blob(SIZE)
    assert put(disk, keys[1], blob(SIZE)) is Status.OK


@pytest.mark.parametrize("part", ["blobs", "tmp", "trash", "quarantine"])
def test_a_vanished_part_of_the_folder_is_made_again(open_disk: Open, folder: Path, part: str) -> None:
    disk = open_disk()
    keys = fill(disk, 3, SIZE)
    shutil.rmtree(folder / part)
    assert put(disk, key_of(100), blob(SIZE)) is Status.OK
    disk.quarantine(keys[:1])
    disk.delete_prefix("none/")
    disk.delete_prefix(keys[0].partition("/")[0] + "/")
    assert disk.contains([*keys, key_of(100)]) == [False] * 4
    assert not files_below(folder / "blobs")


def test_a_truncated_file_is_short(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    key = fill(disk, 1, SIZE)[0]
    with blob_path(folder, key).open("r+b") as file:
        file.truncate(SIZE - 1)
    assert get(disk, key, SIZE) is Status.SHORT
    assert get(disk, key, SIZE - 1) == blob(SIZE, 0)[:-1]


def test_a_folder_in_place_of_a_blob(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    blob_path(folder, "n/c/1").mkdir(parents=True)
    assert disk.contains(["n/c/1"]) == [False]
    assert put(disk, "n/c/1", b"x") is Status.ERROR
    assert get(disk, "n/c/1", 1) is Status.ERROR
    assert put(disk, "n/c/2", b"x") is Status.OK


def test_a_read_only_disk_still_reads(tmpfs: Callable[[int], Path], open_disk: Open) -> None:
    mount = tmpfs(8 << 20)
    disk = open_disk(mount / "tier")
    keys = fill(disk, 3, SIZE)
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    assert put(disk, key_of(100), blob(SIZE)) is Status.ERROR
    assert get(disk, keys[1], SIZE) == blob(SIZE, 1)
    assert disk.delete(keys[:1]) == [False]
    disk.quarantine(keys[2:])
    assert disk.stats().counters["io_errors"] >= 3
    again = open_disk(mount / "tier")
    assert get(again, keys[0], SIZE) == blob(SIZE, 0)
    assert put(again, key_of(101), b"x") is Status.ERROR


def test_a_full_disk_evicts_and_goes_on(tmpfs: Callable[[int], Path], open_disk: Open) -> None:
    disk = open_disk(tmpfs(2 << 20) / "tier", capacity=1 << 30, io_threads=1)
    statuses = [put(disk, key_of(number), blob(SIZE, number)) for number in range(100)]
    assert set(statuses) == {Status.OK}
    assert get(disk, key_of(99), SIZE) == blob(SIZE, 99)
    stats = disk.stats()
    assert stats.evicted_blobs > 60
    assert stats.blobs == 100 - stats.evicted_blobs


def test_a_disk_that_others_filled_is_full_not_broken(tmpfs: Callable[[int], Path], open_disk: Open) -> None:
    mount = tmpfs(1 << 20)
    disk = open_disk(mount / "tier", capacity=1 << 30)
    (mount / "others").write_bytes(bytes((1 << 20) - (40 << 10)))
    assert put(disk, key_of(1), blob(SIZE)) is Status.FULL
    assert not files_below(mount / "tier" / "tmp")
    assert disk.stats().used_bytes == 0
    (mount / "others").unlink()
    assert put(disk, key_of(1), blob(SIZE)) is Status.OK


def test_a_disk_that_fills_up_unnoticed_evicts_and_writes_again(
    tmpfs: Callable[[int], Path], open_disk: Open
) -> None:
    mount = tmpfs(2 << 20)
    disk = open_disk(mount / "tier", capacity=1 << 30, clock=Clock())  # free space is read only once
    keys = fill(disk, 10, SIZE)
    (mount / "others").write_bytes(bytes(shutil.disk_usage(mount).free - (SIZE // 2)))
    assert put(disk, key_of(100), blob(SIZE)) is Status.OK
    assert disk.contains([keys[0], keys[9], key_of(100)]) == [False, True, True]


def test_the_free_space_watermark_is_kept(tmpfs: Callable[[int], Path], open_disk: Open) -> None:
    mount = tmpfs(4 << 20)
    disk = open_disk(mount / "tier", capacity=1 << 30, min_free_bytes=1 << 20)
    for number in range(100):
        assert put(disk, key_of(number), blob(SIZE, number)) is Status.OK
        assert shutil.disk_usage(mount).free >= 1 << 20
    assert disk.stats().blobs > 20


LIMITED = """
import json, resource, sys
from sgkv.backends.base import PutItem
from sgkv.backends.disk import DiskBackend
disk = DiskBackend(sys.argv[1], 1 << 30, min_free_bytes=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
small, large = (PutItem(f"n/{size}", [memoryview(bytes(size))]) for size in (1000, 200_000))
statuses = [status.value for status in disk.put([large, small, large])]
print(json.dumps([statuses, disk.stats().used_bytes]))
"""


def test_a_write_cut_short_by_the_system_leaves_nothing(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [["error", "ok", "error"], 4096]
    assert [path.name for path in files_below(folder)] == ["1000"]


@pytest.fixture
def no_more_files() -> Iterator[Callable[[], None]]:
    """Let the process open no further file, for the rest of the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_blob_that_cannot_be_moved_to_its_place_leaves_nothing(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    blob_path(folder, "a").write_bytes(b"where a folder should be")
    assert put(disk, "a/b", b"x") is Status.ERROR
    assert files_below(folder / "tmp") == []


def test_out_of_file_descriptors(open_disk: Open, no_more_files: Callable[[], None]) -> None:
    disk = open_disk()
    key = fill(disk, 1, SIZE)[0]
    no_more_files()
    assert get(disk, key, SIZE) is Status.ERROR
    assert put(disk, key_of(100), b"x") is Status.ERROR
    assert disk.contains([key]) == [True]
    assert disk.stats().used_bytes == SIZE


def test_eviction_that_may_not_delete_keeps_counting(tmpfs: Callable[[int], Path], open_disk: Open) -> None:
    mount = tmpfs(8 << 20)
    disk = open_disk(mount / "tier")
    keys = fill(disk, ROOM + 1, SIZE)
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    assert put(disk, key_of(100), blob(2 * SIZE)) is Status.ERROR
    assert disk.stats().used_bytes == ROOM * SIZE
    assert disk.stats().evicted_blobs == 1
    assert all(disk.contains(keys[1:]))


@pytest.mark.parametrize("left", [0, 4096])
def test_an_early_end_of_file_by_what_is_in_memory_is_none(
    open_disk: Open, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Linux 5.9 and 5.10 answer a read with RWF_NOWAIT with 0 before the end of the file (preadv2(2),
    BUGS); no such kernel can be had here, so the system call is replaced.
    """
    disk, real = open_disk(), os.preadv
    key = fill(disk, 1, SIZE)[0]

    def preadv(fd: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        if not flags:
            return real(fd, buffers, offset)
        return 0 if offset or not left else real(fd, [buffers[0][:left]], offset)

    monkeypatch.setattr(os, "preadv", preadv)
    assert get(disk, key, SIZE) == blob(SIZE, 0)
    assert get(disk, key, SIZE + 1) is Status.SHORT
