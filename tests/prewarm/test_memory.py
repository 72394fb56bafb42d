"""Filling the cpu tier of a store before its engine asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.cpu import CpuBackend
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.layout import Order
from sgkv.prewarm.memory import Memory, fill_memory
from sgkv.prewarm.outcomes import Report
from sgkv.prewarm.running import Run
from sgkv.store.session import Session
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from tests.prewarm.blobs import flip
from tests.prewarm.test_copy import counts
from tests.store.conftest import MIB, PAGE_BYTES, chain, joined, layout, namespace, put, random_pages, read


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskBackend]:
    backend = DiskBackend(tmp_path / "kv", 64 * MIB, min_free_bytes=0)
    yield backend
    backend.close()


@pytest.fixture
def written(disk: DiskBackend):
    """Two sequences of pages, ten and seven long, as a store without memory writes them."""
    store = Store([Tier("disk", disk)], StoreOptions(chunk_tokens=64))
    session = store.open(namespace(), layout(), "tests")
    sequences = []
    for seed, pages in ((0, 10), (1, 7)):
        sequences.append((chain(pages, seed), random_pages(pages)))
        assert all(put(session, *sequences[-1]))
    return sequences


def filled(source: DiskBackend, cpu: CpuBackend, order: Order = Order.LAYER, **options: object) -> Report:
    run = Run()
    fill_memory(source, Memory(cpu, namespace().digest, layout(order)), run, **options)
    return run.report("fill")


def session_over(cpu: CpuBackend, order: Order = Order.LAYER) -> tuple[Store, Session]:
    store = Store([Tier("cpu", cpu, arena=cpu)], StoreOptions(chunk_tokens=64))
    return store, store.open(namespace(), layout(order), "tests")


def test_pages_are_served_from_memory_that_no_engine_wrote(disk, written):
    cpu = CpuBackend(8 * MIB, prefault=False)
    report = filled(disk, cpu)
    assert counts(report) == {"copied": 3 + 5}  # chunks of four pages, and the pages after the last
    store, session = session_over(cpu)
    for hashes, pages in written:
        reasons, got = read(session, hashes)
        assert reasons == [None] * len(hashes)
        assert got == joined(pages)
    store.close()


def test_again_is_nothing_new(disk, written):
    cpu = CpuBackend(8 * MIB, prefault=False)
    filled(disk, cpu)
    assert set(counts(filled(disk, cpu))) == {"present"}
    cpu.close()


@pytest.mark.parametrize("order", [Order.TOKEN, Order.HEAD])
def test_another_byte_order_is_converted(disk, written, order):
    """What a session of that order reads from memory is what it would read from disk."""
    cpu = CpuBackend(8 * MIB, prefault=False)
    filled(disk, cpu, order)
    store, session = session_over(cpu, order)
    below = Store([Tier("disk", disk)], StoreOptions(chunk_tokens=64))
    for hashes, _ in written:
        assert read(session, hashes) == read(below.open(namespace(), layout(order), "tests"), hashes)
    store.close()


def test_no_more_than_memory_holds_or_a_limit_allows(disk, written):
    small = CpuBackend(8 * PAGE_BYTES, prefault=False)
    filled(disk, small)
    assert small.stats().evicted_blobs == 0
    cpu = CpuBackend(8 * MIB, prefault=False)
    filled(disk, cpu, max_bytes=5 * PAGE_BYTES)
    assert 1 <= cpu.stats().blobs <= 5
    for backend in (small, cpu):
        backend.close()


def test_other_namespaces_stay_out(disk, written):
    cpu = CpuBackend(8 * MIB, prefault=False)
    run = Run()
    fill_memory(disk, Memory(cpu, namespace(tenant="other").digest, layout()), run)
    assert counts(run.report("fill")) == {}
    cpu.close()


def test_damage_stays_out(disk, written, tmp_path):
    for path in (tmp_path / "kv" / "blobs").rglob("*"):
        if path.is_file():
            flip(path, -1)
    cpu = CpuBackend(8 * MIB, prefault=False)
    assert set(counts(filled(disk, cpu))) == {"corrupt"}
    assert cpu.stats().blobs == 0
    cpu.close()
