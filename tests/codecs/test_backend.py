"""Coded tiers: what is written comes back, smaller or sealed in between, by whoever may read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sgkv.backends.base import Backend, GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.header import blob_size
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.opening import Opening
from tests.backends.contract import BackendTests
from tests.codecs.conftest import LAYOUT, chunk, outcome, put

SQUEEZES = ["", "zstd:1", "zstd:19", "lz4"]


class TestContractOfAReader(BackendTests):
    """Without a recipe nothing is coded."""

    def build(self, folder: Path, capacity: int) -> Backend:
        return CodedBackend(DiskBackend(folder / "tier", capacity, min_free_bytes=0))


class TestContractOfAWriter(BackendTests):
    """The contract's blobs are no chunk blobs: they pass."""

    def build(self, folder: Path, capacity: int) -> Backend:
        return CodedBackend(DiskBackend(folder / "tier", capacity, min_free_bytes=0), Recipe("zstd:1"))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("squeeze", SQUEEZES)
def test_what_is_coded_comes_back(
    squeeze: str, planes: bool, sealed: bool, disk: Backend, locksmith: Locksmith
) -> None:
    coded = CodedBackend(disk, Recipe(squeeze, planes, locksmith if sealed else None))
    of = chunk()
    assert put(coded, of) == [Status.OK]
    assert put(coded, of) == [Status.EXISTS]
    assert outcome(coded, of) is Status.OK
    for positions in ([0], [3], [1, 2], [0, 3]):
        assert outcome(coded, of, positions) is Status.OK


@pytest.mark.parametrize("squeeze", SQUEEZES[1:])
def test_what_shrinks_takes_less(squeeze: str, disk: Backend) -> None:
    of = chunk(pages=64)
    put(CodedBackend(disk, Recipe(squeeze)), of)
    (blob,) = disk.scan()
    assert blob.size < 0.75 * blob_size(64, LAYOUT.page_bytes)


def test_noise_is_stored_as_it_is(disk: Backend) -> None:
    coded, of = CodedBackend(disk, Recipe("zstd:1")), chunk()
    noise = [os.urandom(LAYOUT.page_bytes) for _ in of.pages]
    of = type(of)(of.hashes, noise)
    put(coded, of)
    assert outcome(coded, of) is Status.OK


def test_any_tier_reads_what_was_made_smaller(disk: Backend) -> None:
    of = chunk()
    put(CodedBackend(disk, Recipe("zstd:3")), of)
    assert outcome(CodedBackend(disk), of) is Status.OK
    assert outcome(CodedBackend(disk), of, [2]) is Status.OK
    assert outcome(CodedBackend(disk, Recipe("lz4")), of) is Status.OK


def test_a_coded_tier_reads_what_was_not(disk: Backend) -> None:
    of = chunk()
    put(disk, of)
    assert outcome(CodedBackend(disk, Recipe("zstd:1")), of) is Status.OK


def test_many_pages_have_a_longer_head(disk: Backend, locksmith: Locksmith) -> None:
    of, coded = chunk(pages=500), CodedBackend(disk, Recipe("lz4", locksmith=locksmith))
    put(coded, of)
    assert outcome(coded, of) is Status.OK
    assert outcome(coded, of, [499]) is Status.OK


def test_a_batch_of_both_kinds_and_of_none(disk: Backend, locksmith: Locksmith) -> None:
    plain, made, absent = chunk(seed=1), chunk(seed=2), chunk(seed=3)
    coded = CodedBackend(disk, Recipe("zstd:1", locksmith=locksmith))
    put(disk, plain)
    put(coded, made)
    for backend, wanted in ((coded, Status.OK), (CodedBackend(disk), Status.LOCKED)):
        reads = [one.read() for one in (plain, absent, made)]
        assert backend.get([read.item() for read in reads]) == [Status.OK, Status.ABSENT, wanted]


def test_parts_may_begin_and_end_anywhere(disk: Backend) -> None:
    of = chunk()
    coded = CodedBackend(disk, Recipe("zstd:1"))
    put(coded, of)
    plain = bytearray(blob_size(4, LAYOUT.page_bytes))
    assert coded.get([GetItem(of.key, [Part(0, memoryview(plain))])]) == [Status.OK]
    for start, stop in ((1, 2), (4000, 4200), (4096, 4097), (5000, 9000), (len(plain) - 1, len(plain))):
        into = bytearray(stop - start)
        assert coded.get([GetItem(of.key, [Part(start, memoryview(into))])]) == [Status.OK]
        assert into == plain[start:stop]
    assert coded.get([GetItem(of.key, [Part(len(plain), memoryview(bytearray(1)))])]) == [Status.SHORT]


def test_after_its_deadline_nothing_is_written_and_nothing_lands(disk: Backend) -> None:
    of, coded = chunk(), CodedBackend(disk, Recipe("zstd:1"))
    assert put(coded, of, deadline=Deadline(0)) == [Status.TIMEOUT]
    assert not disk.contains([of.key])[0]
    put(coded, of)
    read = of.read()
    assert coded.get([read.item()], Deadline(0)) == [Status.TIMEOUT]
    assert not any(map(any, (page[0] for page in read.pages)))
    assert coded.get([read.item()], Deadline(10)) == [Status.OK]


def test_what_it_did_is_counted(disk: Backend) -> None:
    coded = CodedBackend(disk, Recipe("zstd:1"))
    put(coded, chunk())
    counters = coded.stats().counters
    assert 0 < counters["coded_stored_bytes"] < counters["coded_raw_bytes"]


def test_memory_of_a_batch_is_bounded(disk: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is held for some blobs at a time, not for all that were asked for."""
    held, most = [], 0
    request = Opening.request

    def watched(opening: Opening) -> GetItem:
        nonlocal most
        held.append(opening)
        most = max(most, sum(len(stored) for one in held for stored in one._stored))
        return request(opening)

    monkeypatch.setattr(Opening, "request", watched)
    coded, chunks = CodedBackend(disk, Recipe("zstd:1")), [chunk(seed=seed) for seed in range(20)]
    put(coded, *chunks)
    (size, *_) = (blob.size for blob in disk.scan())
    monkeypatch.setattr("sgkv.codecs.backend._SCRATCH_BYTES", 2 * size)
    assert coded.get([one.read().item() for one in chunks]) == [Status.OK] * 20
    assert len(held) == 20
    assert most <= 2 * size


def test_a_blob_cut_to_almost_nothing_is_no_unsealed_one(disk: Backend, locksmith: Locksmith) -> None:
    """As power cuts leave it: taken out of use, and not kept as if somebody had its key."""
    of = chunk()
    disk.put([PutItem(of.key, [memoryview(b"torn")])])
    coded = CodedBackend(disk, Recipe("zstd:1", locksmith=locksmith), sealed_only=True)
    assert outcome(coded, of) is Status.SHORT
