"""One of several processes on one folder: `python -m tests.backends.crowd ROLE FOLDER CAPACITY SEED`.

Prints what became of its calls as JSON. A blob's bytes follow from its number, so everybody can tell.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path

from sgkv.backends import failpoints
from sgkv.backends.disk import DiskBackend
from tests.backends.blobs import blob, get, key_of, put

NUMBERS = 300
SIZE = 8192
_CALLS = 1500


def write(disk: DiskBackend, number: int) -> str:
    return put(disk, key_of(number), blob(SIZE, number)).value


def read(disk: DiskBackend, number: int) -> str:
    data = get(disk, key_of(number), SIZE)
    if isinstance(data, bytes):
        return "right" if data == blob(SIZE, number) else "wrong"
    return data.value


def make_room(disk: DiskBackend, number: int) -> str:
    """Look at what the others did first, so as to evict for all."""
    disk.rescan(10)
    return write(disk, number)


def lead_until_told(disk: DiskBackend) -> None:
    """Fill the tier, then stop half way through the eviction that one more blob takes."""

    def stop(name: str) -> None:
        if name == "evict.chosen":
            sys.stdout.write("leading\n")
            sys.stdout.flush()
            sys.stdin.readline()

    failpoints.arm(stop)
    for number in range(disk.stats().capacity_bytes // SIZE + 1):
        write(disk, number)


def main() -> None:
    role, folder, capacity, seed = sys.argv[1:]
    disk = DiskBackend(Path(folder), int(capacity), min_free_bytes=0)
    if role == "leader":
        lead_until_told(disk)
        return
    numbers = random.Random(int(seed))
    call, calls = {
        "reader": (read, _CALLS),
        "writer": (write, _CALLS),
        "evictor": (make_room, _CALLS // 10),
    }[role]
    did = Counter(call(disk, numbers.randrange(NUMBERS)) for _ in range(calls))
    did["evicted"] = disk.stats().evicted_blobs
    disk.close()
    json.dump(did, sys.stdout)


if __name__ == "__main__":
    main()
