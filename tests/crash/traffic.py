"""What a process does to a folder until it is killed, and what it must find there before."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sgkv.backends.base import Status
from sgkv.backends.disk import DiskBackend
from sgkv.backends.disk.index import charge
from tests.crash.blobs import FOLDERS, PER_FOLDER, PER_PROCESS, content, get, key_of, prefix_of, put
from tests.crash.ledger import Ledger, State

_OPERATIONS = {"put": 60, "get": 15, "delete": 8, "quarantine": 4, "prefix": 4, "scan": 3, "contains": 6}
_FAVOURED = 100


@dataclass(slots=True)
class Traffic:
    """Random calls on the blobs of one process; the ledger is told before and after each."""

    disk: DiskBackend
    ledger: Ledger
    process: int
    random: random.Random
    favoured: str
    """The operation that passes the armed place."""
    full_is_fine: bool = False
    """Others fill the folder too, faster than this process hears of it."""
    _do: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        self._do = {
            "put": self._put,
            "get": self._get,
            "delete": lambda: self._take_out(lambda key: self.disk.delete([key])),
            "quarantine": lambda: self._take_out(lambda key: self.disk.quarantine([key])),
            "prefix": self._drop_prefix,
            "scan": lambda: self._require(self.disk.rescan(10), "a scan did not end"),
            "contains": lambda: self._require(len(self.disk.contains(self._all())) == PER_PROCESS, ""),
        }

    def run(self, operations: int) -> None:
        names = list(_OPERATIONS)
        weights = [_OPERATIONS[name] + _FAVOURED * (name == self.favoured) for name in names]
        for name in self.random.choices(names, weights, k=operations):
            self._do[name]()

    def _put(self) -> None:
        number = self._any()
        before = self.ledger[number]
        if before is State.GONE:
            self.ledger[number] = State.UNSURE
        status = put(self.disk, number)
        if status is Status.FULL and self.full_is_fine:
            return
        allowed = (Status.OK,) if before is State.GONE else (Status.OK, Status.EXISTS)
        self._require(status in allowed, f"put of a blob that is {before.name} answers {status}")
        self.ledger[number] = State.PUBLISHED

    def _get(self) -> None:
        number = self._any()
        data = get(self.disk, number)
        gone = self.ledger[number] is State.GONE
        self._require(data in ((Status.ABSENT,) if gone else (Status.ABSENT, content(number))), "wrong bytes")

    def _take_out(self, call: Callable[[str], object]) -> None:
        number = self._any()
        self.ledger[number] = State.UNSURE
        call(key_of(number))
        self.ledger[number] = State.GONE

    def _drop_prefix(self) -> None:
        first = self.process * PER_PROCESS + self.random.randrange(FOLDERS) * PER_FOLDER
        for number in range(first, first + PER_FOLDER):
            self.ledger[number] = State.UNSURE
        self._require(self.disk.delete_prefix(prefix_of(first)), "a prefix could not be dropped")
        for number in range(first, first + PER_FOLDER):
            self.ledger[number] = State.GONE

    def _any(self) -> int:
        return self.process * PER_PROCESS + self.random.randrange(PER_PROCESS)

    def _all(self) -> list[str]:
        return list(map(key_of, range(self.process * PER_PROCESS, (self.process + 1) * PER_PROCESS)))

    @staticmethod
    def _require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise AssertionError(otherwise)


def verify(disk: DiskBackend, folder: Path, ledger: Ledger, died: int) -> None:
    """Compare a folder that nobody writes to with what its writers were promised; `died` of them since."""
    assert disk.wait_scanned(10), "the start scan did not end"
    assert disk.wait_emptied(10), "the trash was not emptied"
    sizes = {blob.key: blob.size for blob in disk.scan()}
    _verify_space(disk, folder, sizes)
    there = {number for number in range(ledger.blobs) if _is_whole(disk, number, sizes)}
    back = [number for number in there if ledger[number] is State.GONE]
    assert not back, f"deleted, and there again: {back}"
    lost = [n for n in range(ledger.blobs) if n not in there and ledger[n] is State.PUBLISHED]
    evicted = ledger.possible_evictions(died)
    assert len(lost) <= evicted, f"published, and lost: {lost}; evicted were at most {evicted}"
    for number in range(ledger.blobs):
        ledger[number] = State.PUBLISHED if number in there else State.GONE
    ledger.forget_evictions()


def _is_whole(disk: DiskBackend, number: int, sizes: dict[str, int]) -> bool:
    """Whether a blob is there, by every way to ask; never anything but all of its bytes."""
    data = get(disk, number)
    assert data in (Status.ABSENT, content(number)), f"blob {number} reads as {str(data)[:40]}"
    there = data is not Status.ABSENT
    assert disk.contains([key_of(number)]) == [there]
    assert sizes.get(key_of(number)) == (len(content(number)) if there else None)
    return there


def _verify_space(disk: DiskBackend, folder: Path, sizes: dict[str, int]) -> None:
    stats = disk.stats()
    assert (stats.blobs, stats.used_bytes) == (len(sizes), sum(map(charge, sizes.values()))), "quota is wrong"
    assert not list((folder / "tmp").iterdir()), "temporary files are left"
    assert not list((folder / "trash").iterdir()), "trash is left"
    kept = len(list((folder / "quarantine").iterdir()))
    assert kept <= 16, f"{kept} files in quarantine"
