"""The control plane's registry: who of a thousand instances has a long prompt, and how fast reports go in."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import Series, cost_of, settled_heap
from sgkv.control.places import Device
from sgkv.control.registry import Registry, Shelf

_INSTANCES = 1000
_RECORDS = 10_000_000
_PAGES = 1563
"""100,000 tokens in pages of 64."""
_BATCH = 4096
_PER_CHUNK = 4
_NAMESPACE = "0" * 32
_SHELF = Shelf(_NAMESPACE, "p")


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``admit_rate``: hashes a second, 4,096 at a time, while 10^7 records come in; raw is one dictionary.

    ``lookup_100k_1000i``: the 99th percentile of a lookup of 1,563 pages among them. Every instance has the
    prompt to a length of its own, which is the most work there can be.
    """
    registry = Registry(stale_after=float("inf"))
    for number in range(_INSTANCES):
        registry.receive(f"instance-{number}", 1, 0)
    yield _admit_rate(registry, effort)
    yield _lookup(registry, effort)


def _admit_rate(registry: Registry, effort: Effort) -> Record:
    ours: list[float] = []
    raw: list[float] = []
    plain: dict[bytes, int] = {}
    with settled_heap():
        for number in range(effort.of(_RECORDS, least=_BATCH) // _BATCH):
            hashes = _fresh(_BATCH)
            name = f"instance-{number % _INSTANCES}"
            ours.append(cost_of(lambda: registry.batched_admit(_SHELF, hashes, name, Device.CPU)).wall)  # noqa: B023 - at once
            if number % 16 == 0:
                raw.append(cost_of(lambda: plain.update(dict.fromkeys(hashes, 1))).wall)  # noqa: B023
    rate = len(ours) * _BATCH / sum(ours)
    ratio = (sum(raw) / len(raw)) / (sum(ours) / len(ours))
    bar = Bar("value", ">=", 200_000, "hashes/s")
    return Record("control", "admit_rate", rate, "1/s", ratio_to_raw=ratio, bars=(bar,))


def _lookup(registry: Registry, effort: Effort) -> Record:
    prompt = _fresh(_PAGES)
    rng = random.Random(0)  # noqa: S311 - lengths, not secrets
    for number in range(_INSTANCES):
        length = _PAGES if number == 0 else rng.randrange(1, _PAGES)
        registry.batched_admit(_SHELF, prompt[:length], f"instance-{number}", Device.DISK)
    work = _checked(registry, prompt)
    with settled_heap():
        series = Series([cost_of(work) for _ in range(effort.times(25))])
    bar = Bar("value", "<=", 5, "ms")
    return Record("control", "lookup_100k_1000i", series.p99 * 1e3, "ms", bars=(bar,))


def _checked(registry: Registry, prompt: Sequence[bytes]) -> Callable[[], None]:
    def work() -> None:
        best = registry.batched_p2p_lookup(_NAMESPACE, prompt, _PER_CHUNK)[0]
        if best.pages != len(prompt):
            raise BenchError(f"a lookup found {best.pages} pages, but {len(prompt)} are there")

    return work


def _fresh(count: int) -> list[bytes]:
    return [os.urandom(16) for _ in range(count)]
