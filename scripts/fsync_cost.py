"""What `fsync = "data"` costs: `python scripts/fsync_cost.py`. Prints one JSON object a blob size.

A put with and without, in turns, beside writing and syncing one file of the same bytes by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from sgkv.backends.base import PutItem, Status
from sgkv.backends.disk import DiskBackend

_SIZES = (64 << 10, 1 << 20, 4 << 20)
_BATCH = 8

numbers = count()


def put(tier: DiskBackend, data: memoryview) -> None:
    items = [PutItem(f"cost/c/{next(numbers):08x}", [data]) for _ in range(_BATCH)]
    assert tier.put(items) == [Status.OK] * _BATCH


def write_and_sync(folder: Path, data: memoryview) -> None:
    for _ in range(_BATCH):
        with (folder / str(next(numbers))).open("xb", buffering=0) as file:
            file.write(data)
            os.fdatasync(file.fileno())


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def of_size(home: Path, size: int, rounds: int) -> dict[str, float]:
    """Milliseconds a blob, medians over batches of eight."""
    data = memoryview(os.urandom(size))
    (home / "raw").mkdir()
    without = DiskBackend(home / "none", 1 << 40, min_free_bytes=0)
    with_sync = DiskBackend(home / "data", 1 << 40, min_free_bytes=0, fsync="data")
    calls: dict[str, Callable[[], None]] = {
        "none": lambda: put(without, data),
        "data": lambda: put(with_sync, data),
        "fdatasync_by_hand": lambda: write_and_sync(home / "raw", data),
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds(call) / _BATCH * 1e3)
    without.close()
    with_sync.close()
    return {name: round(statistics.median(times), 3) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="a folder on the disk to measure (default: TMPDIR)")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    for size in _SIZES:
        with tempfile.TemporaryDirectory(prefix="sgkv-fsync-", dir=args.home) as home:
            print(json.dumps({"blob_bytes": size, **of_size(Path(home), size, args.rounds)}), flush=True)


if __name__ == "__main__":
    main()
