"""A store over real tiers, small enough to reason about: 4 pages of 16 tokens a chunk."""

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.layout import Order, PageLayout
from sgkv.identity import Namespace
from sgkv.keys import hash_pages
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier

MIB = 1 << 20


def layout(order: Order = Order.LAYER) -> PageLayout:
    return PageLayout(order, "float32", 16, 2, 2, (64, 32))


PAGE_BYTES = layout().page_bytes


def namespace(**changes: object) -> Namespace:
    fields = {
        "tenant": "t", "weights": "w", "epoch": "", "architecture": "a", "numerics": "n",
        "kv_dtype": "float32",
        "page_tokens": 16, "chunk_tokens": 64, "pool": "kv", "cell": "tp 0/1", "geometry": "g",
    }  # fmt: skip
    return Namespace(**{**fields, **changes})


def chain(pages: int, seed: int = 0) -> list[str]:
    """Hashes of a sequence; chains of different seeds share nothing."""
    return hash_pages([seed * 1_000_000 + token for token in range(pages * 16)], 16)


def random_pages(count: int, cuts: tuple[int, ...] = (1024, 1024, 2048, 2048)) -> list[list[memoryview]]:
    assert sum(cuts) == PAGE_BYTES
    return [[memoryview(bytearray(os.urandom(size))) for size in cuts] for _ in range(count)]


def blank_pages(count: int, cuts: tuple[int, ...] = (2048, 2048, 2048)) -> list[list[memoryview]]:
    """Cut elsewhere than `random_pages`: only the concatenation counts."""
    assert sum(cuts) == PAGE_BYTES
    return [[memoryview(bytearray(size)) for size in cuts] for _ in range(count)]


def joined(pages: list[list[memoryview]]) -> list[bytes]:
    return [b"".join(page) for page in pages]


@dataclass
class Rig:
    """Opens stores over one disk folder; `tiers` says which."""

    path: os.PathLike
    tiers: str
    stores: list[Store]

    def store(
        self,
        *,
        cpu_bytes: int = 8 * MIB,
        disk_bytes: int = 64 * MIB,
        wrap=lambda b: b,
        clock=time.time,
        **options,
    ) -> Store:
        made: list[Tier] = []
        if "cpu" in self.tiers:
            cpu = CpuBackend(cpu_bytes, prefault=False, clock=clock)
            made.append(Tier("cpu", cpu, arena=cpu))
        if "disk" in self.tiers:
            disk = DiskBackend(self.path, disk_bytes, min_free_bytes=0)
            made.append(Tier("disk", wrap(disk)))
        store = Store(made, StoreOptions(**{"chunk_tokens": 64, "tail_delay": 60.0, **options}), clock=clock)
        self.stores.append(store)
        return store

    def restart(self, store: Store, **options) -> Store:
        store.close()
        return self.store(**options)


@contextmanager
def opened(folder, tiers):
    rig = Rig(folder / "kv", tiers, [])
    yield rig
    for store in rig.stores:
        store.close()


@pytest.fixture(params=["cpu+disk", "disk", "cpu"])
def rig(request, tmp_path):
    with opened(tmp_path, request.param) as rig:
        yield rig


@pytest.fixture
def disk_rig(tmp_path):
    """Only a disk tier: what is set is on disk when `set` returns."""
    with opened(tmp_path, "disk") as rig:
        yield rig


@pytest.fixture
def two_tier_rig(tmp_path):
    with opened(tmp_path, "cpu+disk") as rig:
        yield rig


def put(session, hashes, pages, before=()) -> list[bool]:
    return session.set(Span(hashes, before), pages, Deadline(10))


def read(session, hashes, before=()):
    """(reasons, bytes of each page)"""
    into = blank_pages(len(hashes))
    reasons = session.get(Span(hashes, before), into, Deadline(10))
    return reasons, joined(into)


def found_in(session, hashes, before=()):
    return session.lookup(Span(hashes, before), Deadline(10))
