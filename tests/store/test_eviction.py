"""Which pages of a store go first, under each policy of eviction, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from tests.store.conftest import PAGE_BYTES, chain, layout, namespace, random_pages

ROOM = 60


def tier_of(kind: str, policy: str, folder: Path) -> Tier:
    if kind == "disk":
        room = ROOM * 2 * PAGE_BYTES  # headers and whole blocks of the file system
        disk = DiskBackend(folder / "tier", room, min_free_bytes=0, eviction=policy, io_threads=1)
        return Tier("disk", disk)
    cpu = CpuBackend(ROOM * 8192, eviction=policy)
    return Tier("cpu", cpu, arena=cpu)


@pytest.mark.parametrize("kind", ["cpu", "disk"])
def test_reuse_takes_the_end_of_a_chain_and_leaves_no_hole(kind, tmp_path) -> None:
    store = Store([tier_of(kind, "reuse", tmp_path)], StoreOptions(chunk_tokens=64))
    session = store.open(namespace(), layout())
    long = chain(32)
    for start in range(0, 32, 8):
        pages = random_pages(8)
        session.set(Span(long[start : start + 8], long[:start]), pages, Deadline(5))
    left, seed = 32, 1
    while left == 32:
        assert seed < 100, "nothing was evicted"
        session.set(Span(chain(4, seed)), random_pages(4), Deadline(5))
        there = session.contains(Span(long), Deadline(5))
        left, seed = sum(there), seed + 1
        assert there == [True] * left + [False] * (32 - left)
    assert left > 0
    store.close()
