"""The disk backend by itself, beside pwritev and preadv of one file a blob; the page cache is warm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from sgkv.backends.disk import DiskBackend
from sgkv.bench.bare import RAW, Bench
from sgkv.bench.contest import Group, Payload
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.raw import Files
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch

_SCAN_SECONDS = 60.0
_UNBOUNDED = 1 << 50
_A_BLOB = Bar("value", "<=", 40, "µs: 10 a page")
"""A blob holds 256 tokens, that is four pages of 64."""


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Batches of blobs, and the cost of one that is almost empty.

    That of a put is measured in memory, where no device and no journal drown it; that of a get on
    disk, because a memory file system cannot do what the backend asks first (RWF_NOWAIT).
    """
    with _bench(scratch.disk()) as bench:
        yield from bench.throughput(effort)
        get = bench.fixed_cost("get", _A_BLOB, effort)
    with _bench(scratch.memory()) as bench:
        yield bench.fixed_cost("put", _A_BLOB, effort)
    yield get


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with closing(DiskBackend(folder / "sgkv", _UNBOUNDED)) as backend:
        if not backend.wait_scanned(_SCAN_SECONDS):
            raise BenchError(f"the disk backend did not become ready in {folder}")
        numbers = count()

        def against_files(ours: Group, payload: Payload) -> Sequence[Group]:
            plain = folder / f"raw{next(numbers)}"
            plain.mkdir()
            return [ours, {RAW: Files(payload, plain, pages_a_file=1)}]

        yield Bench("disk", backend, against_files, folder / "sgkv" / "blobs")
