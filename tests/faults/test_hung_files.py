"""Files on a disk that hangs: a FIFO's open() takes as long."""

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from sgkv.sglang.hicache import SgkvHiCache
from tests.faults.calls import KEYS, NOTHING, PAGES, READS, WRITES, all_in_time
from tests.faults.conftest import DEADLINE
from tests.faults.stalls import HungFile
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, write
from tests.sglang.pools import Pools, fill, page_bytes

ENGINE = {"exists_deadline": DEADLINE, "get_deadline": DEADLINE, "set_deadline": DEADLINE}
OTHERS = chain(PAGES, seed=9)


class Disk:
    """The files of one backend."""

    def __init__(self, folder: Path, handles: Path) -> None:
        self._blobs = folder / "blobs"
        self._handles = handles
        self._numbers = count()
        self.hung: list[HungFile] = []

    def files(self) -> set[Path]:
        return {path for path in self._blobs.rglob("*") if path.is_file()}

    def hang(self, files: set[Path]) -> None:
        for path in files:
            self.hung.append(HungFile(path, self._handles / f"fifo-{next(self._numbers)}"))

    def release(self) -> None:
        while self.hung:
            self.hung.pop().release()


@pytest.fixture
def kv() -> Pools:
    pools = make.mha()
    fill(pools, seed=1)
    return pools


@pytest.fixture
def disk(disk_rig: Rig, tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(disk_rig.folder, tmp_path)
    yield disk
    disk.release()


def opened(rig: Rig, kv: Pools, threads: int = 4) -> SgkvHiCache:
    tier = {
        "type": "disk", "path": str(rig.folder), "min_free": 0, "io_threads": threads,
        "deadlines": {"contains": DEADLINE, "get": DEADLINE, "put": DEADLINE},
        "breaker": {"cooldown": "10ms", "max_cooldown": "10ms"},
    }  # fmt: skip
    return rig.backend(kv, {"enable_storage_metrics": True}, engine=ENGINE, tiers=[tier])


def test_every_call_is_bounded_when_every_file_hangs(disk_rig: Rig, disk: Disk, kv: Pools) -> None:
    backend = opened(disk_rig, kv)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    disk.hang(disk.files())
    answers = all_in_time(backend, [*READS, *WRITES], DEADLINE)
    hopeless = [name for name in READS if "get" in name]
    assert {name: answers[name] for name in hopeless} == {name: NOTHING[name] for name in hopeless}


def test_the_reason_is_that_time_ran_out(disk_rig: Rig, disk: Disk, kv: Pools) -> None:
    backend = opened(disk_rig, kv)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    disk.hang(disk.files())
    assert backend.batch_exists(KEYS, after()) == PAGES, "the index does not know yet"
    assert read(backend, kv, KEYS, range(PAGES)) == [False] * PAGES
    assert backend.store.counters.snapshot()["miss_pages"] == {"timeout": PAGES}


def test_files_that_do_not_hang_are_served_beside_one_that_does(disk_rig: Rig, disk: Disk, kv: Pools) -> None:
    backend = opened(disk_rig, kv)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    hanging = disk.files()
    assert all(write(backend, kv, OTHERS, range(PAGES)))
    disk.hang({min(hanging)})
    read(backend, kv, KEYS, range(8, 16))
    assert read(backend, kv, OTHERS, range(8, 16)) == [True] * PAGES
    assert [page_bytes(kv.host, page) for page in range(8, 16)] == [
        page_bytes(kv.host, page) for page in range(8)
    ]


def test_with_every_reader_hung_lookups_and_writes_go_on(disk_rig: Rig, disk: Disk, kv: Pools) -> None:
    """Kind: a lock or a thread kept by a read that never ends stops the scheduler's next lookup."""
    backend = opened(disk_rig, kv, threads=1)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    disk.hang(disk.files())
    assert not any(read(backend, kv, KEYS, range(PAGES)))
    assert all(write(backend, kv, OTHERS, range(PAGES)))
    assert backend.batch_exists(OTHERS, after()) == PAGES
    assert not any(read(backend, kv, OTHERS, range(PAGES))), "no thread is left that could read"
    disk.release()


def test_when_the_disk_comes_back_it_is_used_again(disk_rig: Rig, disk: Disk, kv: Pools) -> None:
    backend = opened(disk_rig, kv, threads=1)
    assert all(write(backend, kv, OTHERS, range(PAGES)))
    before = disk.files()
    assert all(write(backend, kv, KEYS, range(PAGES)))
    disk.hang(disk.files() - before)
    assert not any(read(backend, kv, KEYS, range(PAGES)))
    disk.release()
    for _ in range(200):
        if all(read(backend, kv, OTHERS, range(PAGES))):
            return
        threading.Event().wait(0.02)
    pytest.fail("the tier stayed unused")
