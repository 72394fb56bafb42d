"""Several processes on one folder: writers, readers, evictors, and what else happens to it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sgkv.backends.base import PutItem, Status
from sgkv.backends.disk import layout
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.backends.crowd import NUMBERS, SIZE
from tests.backends.disks import Clock, Open, age, blob_path, bytes_below, files_below

ROOM = 100
"""Blobs a folder may hold, of the 300 that are written again and again."""


def start(role: str, folder: Path, seed: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.backends.crowd", role, str(folder), str(ROOM * SIZE), str(seed)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def once(call: Callable[[], None]) -> Callable[[], None]:
    """A hook that does something the first time it is called."""
    calls = iter([call])

    def hook() -> None:
        for first in calls:
            first()

    return hook


def test_writers_readers_and_evictors_of_five_processes(open_disk: Open, folder: Path) -> None:
    roles = ["writer", "writer", "reader", "reader", "evictor"]
    crowd = [start(role, folder, seed) for seed, role in enumerate(roles)]
    did = [json.loads(process.communicate(timeout=60)[0]) for process in crowd]
    assert all(process.returncode == 0 for process in crowd)
    after = json.loads(start("reader", folder, seed=5).communicate(timeout=60)[0])
    assert after["right"], "one that comes when all have written finds some of it"
    for readers in (*did[2:4], after):
        assert set(readers) <= {"right", "absent", "evicted"}
    for writers in (*did[:2], did[4]):
        assert set(writers) <= {"ok", "exists", "full", "evicted"}
    assert sum(process["evicted"] for process in did)
    disk = open_disk(capacity=ROOM * SIZE)
    assert put(disk, key_of(NUMBERS), blob(SIZE)).ok
    assert bytes_below(folder / "blobs") <= ROOM * SIZE
    assert disk.stats().blobs == len(files_below(folder / "blobs"))
    assert not files_below(folder / "tmp")


def test_one_process_leads_an_eviction_and_its_death_frees_the_lead(open_disk: Open, folder: Path) -> None:
    leader = start("leader", folder)
    assert leader.stdout is not None
    assert leader.stdout.readline() == "leading\n"
    disk = open_disk(capacity=ROOM * SIZE)
    assert put(disk, key_of(1000), blob(SIZE)) is Status.OK
    assert disk.stats().evicted_blobs == 1, "who does not lead evicts what its own blob needs, at once"
    leader.kill()
    leader.communicate()
    assert put(disk, key_of(1001), blob(SIZE)) is Status.OK
    assert disk.stats().evicted_blobs == 1 + ROOM // 20, "a leader evicts ahead of need"


def test_the_folder_is_deleted_under_three_tiers_that_are_full(open_disk: Open, folder: Path) -> None:
    tiers = [open_disk(capacity=8 * SIZE) for _ in range(3)]
    keys = fill(tiers[0], 8, SIZE)
    for tier in tiers[1:]:
        assert all(tier.contains(keys))
    shutil.rmtree(folder)
    for nth, tier in enumerate(tiers):
        assert get(tier, keys[0], SIZE) is Status.ABSENT
        assert put(tier, key_of(100 + nth), blob(SIZE, nth)) is Status.OK
    for tier in tiers:
        assert tier.rescan(10)
        assert [get(tier, key_of(100 + nth), SIZE) for nth in range(3)] == [blob(SIZE, n) for n in range(3)]
        assert tier.stats().used_bytes == 3 * SIZE


def test_the_folder_is_deleted_while_a_blob_is_written(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    item = PutItem(key_of(1), [memoryview(blob(SIZE))], once(lambda: shutil.rmtree(folder)))
    assert disk.put([item]) == [Status.OK]
    assert get(disk, key_of(1), SIZE) == blob(SIZE)


@pytest.mark.parametrize("jump", [-10 * 365 * 86400, 10 * 365 * 86400], ids=["back", "ahead"])
def test_files_dated_by_a_clock_that_was_wrong(open_disk: Open, folder: Path, jump: int) -> None:
    """They are evicted in an order that follows from their dates, and are otherwise like others."""
    disk = open_disk(capacity=8 * SIZE)
    keys = fill(disk, 8, SIZE)
    for key in keys[3:5]:
        age(blob_path(folder, key), -jump)
    disk.close()
    again = open_disk(capacity=8 * SIZE)
    assert [get(again, key, SIZE) for key in keys[4:]] == [blob(SIZE, number) for number in range(4, 8)]
    again.close()
    age(blob_path(folder, keys[4]), -jump)
    third = open_disk(capacity=8 * SIZE)
    assert put(third, key_of(100), blob(SIZE)) is Status.OK
    assert third.contains(keys[3:5]) == ([True, True] if jump > 0 else [False, True])
    assert bytes_below(folder / "blobs") <= 8 * SIZE


def test_a_monotonic_clock_that_stands_still_or_leaps(open_disk: Open, folder: Path) -> None:
    """As after a machine was suspended: what was read of the folder is merely old."""
    clock = Clock()
    disk = open_disk(capacity=8 * SIZE, clock=clock)
    fill(disk, 8, SIZE)
    for leap in (0.0, 1e6, 1e9):
        clock.now += leap
        assert put(disk, key_of(100 + int(leap)), blob(SIZE)) is Status.OK
        assert bytes_below(folder / "blobs") <= 8 * SIZE


def test_a_running_write_survives_a_clock_that_makes_it_look_abandoned(open_disk: Open, folder: Path) -> None:
    """Another host's clock is an hour ahead: it takes the temporary file away, and the write starts over."""
    disk = open_disk()
    item = PutItem(key_of(1), [memoryview(blob(SIZE))], once(lambda: shutil.rmtree(folder / "tmp")))
    assert disk.put([item]) == [Status.OK]
    assert get(disk, key_of(1), SIZE) == blob(SIZE)


class RenamesOfNfs:
    """A C library over a file system that knows no flags of rename."""

    def renameat2(self, *args: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1


def test_where_rename_knows_no_flags(open_disk: Open, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_libc", RenamesOfNfs())
    one, two = open_disk(), open_disk()
    keys = fill(one, 4, SIZE)
    assert put(two, keys[0], b"other") is Status.EXISTS
    assert [get(two, key, SIZE) for key in keys] == [blob(SIZE, number) for number in range(4)]
    assert not files_below(folder / "tmp")


def test_a_rename_whose_answer_was_lost(open_disk: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that did it and did not say so is asked again, and finds no source: the blob is there."""

    def repeated(temp: str, final: str) -> bool:
        Path(final).parent.mkdir(parents=True, exist_ok=True)
        Path(temp).rename(final)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), temp)

    monkeypatch.setattr(layout, "_rename_new", repeated)
    disk = open_disk()
    assert put(disk, key_of(1), blob(SIZE)).ok
    assert get(disk, key_of(1), SIZE) == blob(SIZE)
    assert disk.stats().used_bytes == SIZE


def test_files_an_nfs_client_keeps_for_who_still_reads_are_no_blobs(open_disk: Open, folder: Path) -> None:
    disk = open_disk()
    key = fill(disk, 1, SIZE)[0]
    kept = blob_path(folder, key).with_name(".nfs0000000000a1")
    kept.write_bytes(b"deleted, and still open elsewhere")
    assert disk.rescan(10)
    assert disk.stats().blobs == 1
    assert disk.delete_prefix(f"{key.partition('/')[0]}/")
    assert disk.contains([key]) == [False]
