"""A long run of the traffic of tests/model, watching what must not grow. Exit code 1 where something did.

Rounds of traffic: eight threads, two stores on one folder, failing tiers, rotting files, and a third store
that is opened and closed. Between rounds everything comes to rest and is counted.

`make soak` ties glibc's hands (MALLOC_ARENA_MAX, MALLOC_MMAP_THRESHOLD_): left alone it keeps freed memory in
steps of a megabyte, which is more than the growth that is looked for.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from sgkv.store.store import Store, StoreStats
from tests.model.traffic import DISK_BYTES, Tally, play, two_stores

_ROUND_SECONDS = 6.0
_THREADS = 8
_RSS_GROWTH = 0.02
_QUARANTINE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process holds while nothing is under way."""

    seconds: float
    calls: int
    rss_kib: int
    descriptors: int
    threads: int
    stray_threads: int
    """Threads that no store's statistics account for."""
    leases: int
    shm_kib: int
    blob_kib: int
    other_kib: int
    """Quarantine and trash."""
    temp_files: int


def main() -> int:
    """Run, print a table, and say whether anything leaked."""
    options = _options()
    logging.disable(logging.WARNING)  # faults are injected by the thousand
    total = Tally()
    with TemporaryDirectory(prefix="sgkv-soak-") as folder:
        samples = _soak(Path(folder), options.minutes * 60, total)
    faults = _leaks(samples) + [f"{len(total.wrong)} wrong pages were served"] * bool(total.wrong)
    _print(samples, total, faults)
    if options.json:
        report = {"samples": [asdict(sample) for sample in samples], "leaks": faults, "calls": total.calls}
        options.json.write_text(json.dumps(report | {"served": total.served, "missed": total.missed}))
    return 1 if faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="write all samples here")
    return parser.parse_args()


def _soak(folder: Path, seconds: float, total: Tally) -> list[Sample]:
    began, samples = time.monotonic(), []
    with two_stores(folder) as stores:
        while (elapsed := time.monotonic() - began) < seconds or len(samples) < 8:
            ends = time.monotonic() + _ROUND_SECONDS
            total.add(play(stores, folder, _THREADS, lambda e=ends: time.monotonic() < e, len(samples)))
            with two_stores(folder) as others:  # opened, used and closed while the first two stay
                total.add(play(others, folder, 2, _once(), 10_000 + len(samples)))
            samples.append(_sample(elapsed, sum(total.calls.values()), stores, folder))
    return samples


def _once() -> Callable[[], bool]:
    """True for the first caller."""
    first = threading.Lock()
    return lambda: first.acquire(blocking=False)


def _sample(seconds: float, calls: int, stores: list[Store], folder: Path) -> Sample:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later is no leak
    for store in stores:
        store.flush(30.0)
        for tier in store.tiers:
            _rest(tier.backend)
    stats = [store.stats() for store in stores]
    leases = [tier.leases for one in stats for tier in one.tiers.values()]
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    return Sample(
        round(seconds, 1),
        calls,
        rss_kib=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 10,
        descriptors=len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 - one of them is the listing itself
        threads=threads,
        stray_threads=threads - sum(map(_own_threads, stats)),
        leases=sum(leases),
        shm_kib=_shared_memory() >> 10,
        blob_kib=_bytes_below(folder / "blobs") >> 10,
        other_kib=(_bytes_below(folder / "quarantine") + _bytes_below(folder / "trash")) >> 10,
        temp_files=len(list((folder / "tmp").iterdir())),
    )


def _rest(backend: object) -> None:
    """Wait for the space of dropped prefixes, below whatever is wrapped around the disk tier."""
    while hasattr(backend, "inner"):
        backend = backend.inner
    if hasattr(backend, "wait_emptied"):
        backend.wait_emptied(30.0)


def _own_threads(stats: StoreStats) -> int:
    bounds = [stats.bounds, *(tier.bounds for tier in stats.tiers.values())]
    return sum(bound.used for some in bounds for name, bound in some.items() if name.endswith("_threads"))


def _shared_memory() -> int:
    """Bytes of /dev/shm that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if "/dev/shm" in line]  # noqa: S108
    return sum(int(stop, 16) - int(start, 16) for start, stop in ranges)


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _leaks(samples: list[Sample]) -> list[str]:
    """What grew from the third quarter of the run to the last; the first half is its warm-up."""
    quarter = len(samples) // 4
    first, last = samples[2 * quarter : 3 * quarter], samples[3 * quarter :]
    growth = median(s.rss_kib for s in last) / median(s.rss_kib for s in first) - 1
    found = [f"RSS grew by {growth:.1%}"] if growth >= _RSS_GROWTH else []
    for name in ("descriptors", "stray_threads", "shm_kib"):
        before, after = (max(getattr(s, name) for s in part) for part in (first, last))
        if after > before:
            found.append(f"{name} grew from {before} to {after}")
    for name, bound in (
        ("leases", 0),
        ("temp_files", 0),
        ("blob_kib", 2 * DISK_BYTES >> 10),  # two stores may each pass the quota by what the other wrote
        ("other_kib", _QUARANTINE_BYTES >> 10),
    ):
        most = max(getattr(s, name) for s in samples)
        if most > bound:
            found.append(f"{name}: {most}, of at most {bound}")
    return found


def _print(samples: list[Sample], total: Tally, faults: list[str]) -> None:
    calls = ", ".join(f"{count} {name}" for name, count in total.calls.most_common())
    table = Table(title="soak", caption=f"{calls}; {total.served} pages served, {total.missed} missed")
    names = list(asdict(samples[0]))
    for name in names:
        table.add_column(name, justify="right")
    for sample in samples[:: max(1, len(samples) // 15)]:
        table.add_row(*(str(getattr(sample, name)) for name in names))
    console = Console(width=130)
    console.print(table)
    console.print("nothing grew" if not faults else "LEAKS: " + "; ".join(faults))


if __name__ == "__main__":
    sys.exit(main())
