"""The cpu backend by itself, beside memcpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from sgkv.backends.cpu import CpuBackend
from sgkv.bench.bare import RAW, TOTAL, Bench
from sgkv.bench.contest import Group, Payload
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.raw import Memcpy
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch

_PREFAULT_SECONDS = 60.0
_AN_ITEM = Bar("value", "<=", 10, "µs")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Batches of blobs, and the cost of an item that is almost empty."""
    with closing(CpuBackend(2 * TOTAL)) as backend:
        if not backend.wait_prefaulted(_PREFAULT_SECONDS):
            raise BenchError("the arena did not become resident: is there too little memory?")

        def beside_memcpy(ours: Group, payload: Payload) -> Sequence[Group]:
            return [ours | {RAW: Memcpy(payload, backend)}]

        bench = Bench("cpu", backend, beside_memcpy)
        yield from bench.throughput(effort)
        yield bench.fixed_cost("put", _AN_ITEM, effort)
        yield bench.fixed_cost("get", _AN_ITEM, effort)
