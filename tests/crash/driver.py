"""A process without threads that forks others and has them killed: `python -m tests.crash.driver`.

Prints how often each place killed, as JSON. Ends with a traceback where a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from sgkv.backends.disk import DiskBackend
from sgkv.backends.disk.index import charge
from sgkv.backends.failpoints import POINTS
from tests.crash.blobs import PER_PROCESS, content, key_of, put
from tests.crash.forks import die_at, fork, reap
from tests.crash.ledger import Ledger, State
from tests.crash.store_traffic import StoreRig
from tests.crash.traffic import Traffic, verify

AMPLE, TIGHT = 1 << 30, 16 * 8192
PROCESSES = 3
_OPERATIONS = 80
_FAVOURED = {"put": "put", "evict": "put", "delete": "delete", "quarantine": "quarantine",
             "prefix": "prefix", "trash": "prefix", "scan": "scan"}  # fmt: skip
DISK_POINTS = [point for point in POINTS if point.partition(".")[0] in _FAVOURED]
STORE_POINTS = [point for point in POINTS if point.partition(".")[0] in ("behind", "promote", "clear")]


class Folder:
    """One folder, its ledger, and the processes that come and go."""

    def __init__(self, path: Path, capacity: int, processes: int, seed: int) -> None:
        self.path = path
        self.capacity = capacity
        self.ledger = Ledger(processes * PER_PROCESS)
        self.random = random.Random(seed)
        self.died = 0
        for number in range(self.ledger.blobs):
            content(number)  # made here, so that no child has to

    def start(self, process: int, point: str, *, check: bool, operations: int = _OPERATIONS) -> int:
        """A child that checks what it finds (where it is alone), works, and dies at `point` (if any)."""
        seed, passes = self.random.getrandbits(32), self.random.randint(1, 4)

        def count(name: str) -> None:
            if name == "evict.chosen":
                self.ledger.begin_eviction(process)
            elif name == "evict.unlinked":
                self.ledger.count_eviction(process)

        def run() -> None:
            die_at(point, passes, count)
            disk = self.open()
            if check:
                verify(disk, self.path, self.ledger, self.died)
                self._check_quota(disk)
            favoured = _FAVOURED.get(point.partition(".")[0], "")
            Traffic(disk, self.ledger, process, random.Random(seed), favoured, not check).run(operations)
            disk.close()

        return fork(run)

    def check(self) -> None:
        """Check in a child that does nothing else; the first put after it keeps to the capacity."""
        reap(self.start(0, "", check=True, operations=0))
        self.died = 0

    def _check_quota(self, disk: DiskBackend) -> None:
        """It holds from the first put on that needs room, whatever those before left."""
        self.ledger[0] = State.UNSURE
        disk.delete([key_of(0)])
        self.ledger[0] = State.PUBLISHED if put(disk, 0).ok else State.UNSURE
        used = sum(charge(blob.size) for blob in disk.scan())
        assert used <= self.capacity, f"{used} bytes of {self.capacity} are taken"

    def open(self) -> DiskBackend:
        return DiskBackend(self.path, self.capacity, min_free_bytes=0)


def one_by_one(folder: Folder, points: list[str]) -> Iterator[str]:
    """Each process checks what its predecessor's death left, and dies at the next place."""
    while True:
        for point in points:
            killed = reap(folder.start(0, point, check=True))
            folder.died += killed
            if killed:
                yield point


def any_moment(folder: Folder) -> Iterator[str]:
    """Killed from outside, at no place in particular."""
    while True:
        pid = folder.start(0, "", check=True, operations=100_000)
        folder.died += 1
        assert reap(pid, kill_after=folder.random.uniform(0.004, 0.03))
        yield "any"


def together(folder: Folder) -> Iterator[str]:
    """Three at a time over one folder, all killed; then one looks at what they left."""
    while True:
        points = folder.random.choices([point for point in DISK_POINTS if point[:4] != "scan"], k=PROCESSES)
        pids = [folder.start(nth, point, check=False) for nth, point in enumerate(points)]
        ends = time.monotonic() + folder.random.uniform(0.02, 0.06)
        killed = [reap(pid, max(0.0, ends - time.monotonic())) for pid in pids]
        folder.died += sum(killed)
        folder.check()
        yield from (point for point, dead in zip(points, killed, strict=True) if dead)


def _store(path: Path, seed: int, tiers: str) -> Iterator[str]:
    rig = StoreRig(path, tiers, seed)
    while True:
        for point in STORE_POINTS if tiers == "cpu+disk" else ["clear.begun", "clear.tier", "put.renamed"]:
            if reap(rig.start(point)):
                yield point


SCENARIOS: dict[str, Callable[[Path, int], Iterator[str]]] = {
    "roomy": lambda path, seed: one_by_one(
        Folder(path, AMPLE, 1, seed), [point for point in DISK_POINTS if not point.startswith("evict")]
    ),
    "evicting": lambda path, seed: one_by_one(Folder(path, TIGHT, 1, seed), DISK_POINTS),
    "any moment": lambda path, seed: any_moment(Folder(path, TIGHT, 1, seed)),
    "together": lambda path, seed: together(Folder(path, 2 * TIGHT, PROCESSES, seed)),
    "store": lambda path, seed: _store(path, seed, "cpu+disk"),
    "store without memory": lambda path, seed: _store(path, seed, "disk"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--crashes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    ends = time.monotonic() + args.seconds
    for point in SCENARIOS[args.scenario](args.folder, args.seed):
        counts[point] += 1
        if counts.total() >= args.crashes or time.monotonic() > ends:
            break
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
