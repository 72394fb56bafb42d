"""How a disk tier's costs grow with the number of blobs: `python scripts/scale.py 10000 100000`.

Makes a folder of that many small blobs for each argument, and in a fresh process opens it, looks up,
evicts and scans. Prints one JSON object a size; docs/scale.md says what the figures were.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.disk import DiskBackend

_BODY = b"a small blob"
_BLOCK = 4096
"""What a file counts in the quota at least."""
_PROMPT = 1563
"""Keys of a lookup: 100,000 tokens in pages of 64."""
_ROOM = 1 << 42


def key_of(number: int) -> str:
    name = hashlib.sha256(number.to_bytes(8, "little")).hexdigest()
    return f"{0:032x}/c/{name[:2]}/{name}"


def fill(root: Path, blobs: int) -> float:
    """Write the files as a tier lays them out, without a tier; seconds it took."""
    began = time.perf_counter()
    folder = root / "blobs" / f"{0:032x}" / "c"
    for shard in range(256):
        (folder / f"{shard:02x}").mkdir(parents=True)
    for number in range(blobs):
        file = os.open(f"{root}/blobs/{key_of(number)}", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, _BODY)
        os.close(file)
    return time.perf_counter() - began


def files_a_folder(root: Path) -> dict[str, float]:
    counts = [len(list(folder.iterdir())) for folder in (root / "blobs" / f"{0:032x}" / "c").iterdir()]
    return {"least": min(counts), "median": statistics.median(counts), "most": max(counts)}


def resident(field: str = "VmRSS") -> float:
    """MiB of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) / 1024


def open_tier(root: Path, capacity: int = _ROOM) -> DiskBackend:
    return DiskBackend(root, capacity, min_free_bytes=0)


def hit(tier: DiskBackend, key: str) -> float:
    """Seconds of one read."""
    into = bytearray(len(_BODY))
    began = time.perf_counter()
    (status,) = tier.get([GetItem(key, [Part(0, memoryview(into))])])
    took = time.perf_counter() - began
    assert (status, into) == (Status.OK, _BODY)
    return took


def lookup(tier: DiskBackend, keys: list[str], expected: bool) -> float:
    began = time.perf_counter()
    found = tier.contains(keys)
    took = time.perf_counter() - began
    assert found == [expected] * len(keys)
    return took


def start(root: Path, blobs: int) -> Iterator[tuple[str, float]]:
    """Opening, the first hit, and calls while the index is being filled and afterwards."""
    prompt = [key_of(number) for number in range(0, blobs, max(1, blobs // _PROMPT))][:_PROMPT]
    absent = [key_of(blobs + number) for number in range(_PROMPT)]
    gc.collect()
    before, cpu_before, began = resident(), time.process_time(), time.perf_counter()
    tier = open_tier(root)
    hit(tier, prompt[0])
    yield "first_hit_ms", (time.perf_counter() - began) * 1e3
    yield "lookup_while_scanning_ms", lookup(tier, prompt, True) * 1e3
    hits = [hit(tier, prompt[0])]
    while not tier.wait_scanned(0.005):
        hits.append(hit(tier, prompt[len(hits) % len(prompt)]))
    yield "index_complete_s", time.perf_counter() - began
    yield "index_cpu_s", time.process_time() - cpu_before
    yield "slowest_hit_while_scanning_ms", max(hits) * 1e3
    gc.collect()
    yield "index_mib", resident() - before
    yield "peak_mib", resident("VmHWM") - before
    yield "lookup_ms", min(lookup(tier, prompt, True) for _ in range(20)) * 1e3
    yield "lookup_absent_ms", min(lookup(tier, absent, False) for _ in range(20)) * 1e3
    yield "hit_us", statistics.median(hit(tier, key) for key in prompt) * 1e6
    began = time.perf_counter()
    assert tier.rescan(600)
    yield "scan_again_s", time.perf_counter() - began
    tier.close()


@contextmanager
def another_leads(root: Path) -> Iterator[None]:
    """Hold the lock of the leader, so that an eviction takes no more than its own blob needs."""
    with (root / "evict.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def evict(root: Path, blobs: int) -> Iterator[tuple[str, float]]:
    """One blob that takes the room of every hundredth, in a full tier."""
    tier = open_tier(root, capacity=blobs * _BLOCK)
    assert tier.wait_scanned(600)
    one_percent = max(1, blobs // 100)
    room = memoryview(bytearray(one_percent * _BLOCK))
    with another_leads(root):
        began = time.perf_counter()
        (status,) = tier.put([PutItem(f"{0:032x}/c/00/{'f' * 64}", [room])])
        took = time.perf_counter() - began
    assert (status, tier.stats().evicted_blobs) == (Status.OK, one_percent)
    yield "evict_1_percent_s", took
    yield "evict_us_a_blob", took / one_percent * 1e6
    tier.close()


def measure(root: Path, blobs: int) -> dict[str, float]:
    """In a process that has not seen the folder."""
    arguments = [sys.executable, __file__, "--measure", str(root), str(blobs)]
    return dict(json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout))


def of_size(home: Path | None, blobs: int) -> None:
    """Print the figures before the files are deleted, which takes longer than all the rest."""
    root = Path(tempfile.mkdtemp(prefix="sgkv-scale-", dir=home))
    try:
        figures = {"blobs": blobs, "fill_s": fill(root, blobs), "files_a_folder": files_a_folder(root)}
        print(json.dumps({**figures, **measure(root, blobs)}), flush=True)
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", type=int, nargs="+", metavar="BLOBS")
    parser.add_argument("--home", type=Path, help="where to make the folders (default: TMPDIR)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure is not None:
        (blobs,) = args.sizes
        print(json.dumps({**dict(start(args.measure, blobs)), **dict(evict(args.measure, blobs))}))
        return
    for blobs in args.sizes:
        of_size(args.home, blobs)


if __name__ == "__main__":
    main()
