"""The suites, by the names `sgkv bench` knows them by. A suite is a module with `measure`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from sgkv.bench.effort import Effort
from sgkv.bench.records import Record
from sgkv.bench.scratch import Scratch

SUITES = (
    "hicache",
    "cpu",
    "disk",
    "lookup",
    "hash",
    "startup",
    "trouble",
    "kernels",
    "linker",
    "s3",
    "mooncake",
    "valkey",
    "node",
    "codecs",
    "decide",
    "control",
    "blend",
    "vllm",
)


def measure(suite: str, effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """Records of one suite as they are finished; imports only what that suite needs.

    Raises BenchError where the suite cannot run here, or measured something that is wrong.
    """
    module = importlib.import_module(f"{__name__}.{suite}")
    records: Iterator[Record] = module.measure(effort, scratch)
    return records
