"""A process without threads that forks runs and has them killed: `python -m tests.prewarm.driver`.

Prints, as JSON, how many runs were killed, how many blobs there are and how many were read over all runs.
Ends with a traceback where a run left anything but whole blobs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sgkv.backends.base import Backend, GetItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper
from sgkv.prewarm.copying import copy_blobs
from sgkv.prewarm.journal import Journal
from sgkv.prewarm.outcomes import Ended
from sgkv.prewarm.pace import Bandwidth, Control
from sgkv.prewarm.planning import Limits
from sgkv.prewarm.running import Run
from sgkv.prewarm.selection import Selection
from sgkv.prewarm.verifying import verify_blobs
from tests.crash.forks import die_at, fork, reap
from tests.prewarm.blobs import SIZE, contents, disk, fill

BLOBS, WORKERS = 150, 3
POINTS = ("put.claimed", "put.opened", "put.filled", "put.folder", "put.renamed", "put.indexed")
_A_RUN_SECONDS = 1.5
"""What a run takes that nobody kills, by its bandwidth; so that kills hit the middle."""


class Logged(Wrapper):
    """Adds a line to a file for every blob that is read, which outlives the process."""

    def __init__(self, inner: Backend, log: Path) -> None:
        super().__init__(inner)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        os.write(self._log, "".join(f"{item.key}\n" for item in items).encode())
        return self.inner.get(items, deadline)


def new_run() -> Run:
    return Run(Control(bandwidth=Bandwidth(BLOBS * SIZE / _A_RUN_SECONDS)), workers=WORKERS)


def copy(home: Path) -> None:
    run = new_run()
    source, target = Logged(disk(home / "far", marks_use=False), home / "log"), disk(home / "near")
    copy_blobs(source, target, Selection(), Limits(), run)
    assert run.control.ended is Ended.COMPLETE, run.report("copy")


def verify(home: Path) -> None:
    run = new_run()
    source = Logged(disk(home / "far", marks_use=False), home / "log")
    with Journal(home / "state", "verify") as journal:
        verify_blobs(source, Selection(), journal, run)
    assert run.control.ended is Ended.COMPLETE, run.report("verify")


RUNS: dict[str, Callable[[Path], object]] = {"copy": copy, "verify": verify}


def prepare(home: Path) -> None:
    """Fill the source, and make its files old enough to have one age each."""
    far = disk(home / "far")
    for number, key in enumerate(fill(far, BLOBS)):
        stamp = time.time() - BLOBS + number
        os.utime(home / "far" / "blobs" / key, (stamp, stamp))
    far.close()


def once(what: str, home: Path, seed: int) -> bool:
    """One run, killed at a place of the writer or at any moment; True if it came to its end first."""
    source = random.Random(seed)
    at_a_place = what == "copy" and seed % 2
    point = POINTS[seed // 2 % len(POINTS)] if at_a_place else ""

    def child() -> None:
        die_at(point, source.randint(1, 20))
        RUNS[what](home)

    return not reap(fork(child), None if at_a_place else source.uniform(0.05, 0.25))


def same(home: Path) -> None:
    """Whether both tiers hold the same, and nothing half done is left."""
    far, near = disk(home / "far"), disk(home / "near")
    assert near.wait_scanned(10)
    assert contents(far) == contents(near)
    assert list((home / "near" / "tmp").iterdir()) == []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=RUNS)
    parser.add_argument("home", type=Path)
    parser.add_argument("--kills", type=int, required=True)
    args = parser.parse_args()
    assert not reap(fork(lambda: prepare(args.home)))
    killed = 0
    for seed in itertools.count():
        if seed >= args.kills:
            assert not reap(fork(lambda: RUNS[args.what](args.home)))
            break
        if once(args.what, args.home, seed):
            break
        killed += 1
    if args.what == "copy":
        assert not reap(fork(lambda: same(args.home)))
    read = (args.home / "log").read_text().splitlines()
    json.dump({"killed": killed, "blobs": BLOBS, "read": len(read), "distinct": len(set(read))}, sys.stdout)


if __name__ == "__main__":
    main()
