"""Chunk blobs of small pages, and keys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sgkv.backends.base import Backend, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.blob import BlobIdentity, BlobRead, put_item
from sgkv.chunk.layout import Order, PageLayout
from sgkv.codecs.keys import HeldKeys
from sgkv.codecs.locksmith import Locksmith
from sgkv.keys import chunk_keys
from sgkv.reasons import MissReason

LAYOUT = PageLayout(Order.LAYER, "bfloat16", 16, 2, 2, (32, 32))
NAMESPACE = "0123456789abcdef" * 2
IDENTITY = BlobIdentity(NAMESPACE, LAYOUT, "test/1")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages under a name, and how to store and read them."""

    hashes: Sequence[str]
    pages: Sequence[bytes]

    @property
    def key(self) -> str:
        return chunk_keys(NAMESPACE, [self.hashes[-1]])[0]

    def put_item(self, expires_at: int = 0) -> PutItem:
        halves = [[memoryview(page)[:100], memoryview(page)[100:]] for page in self.pages]
        return put_item(self.key, IDENTITY, self.hashes, halves, expires_at)

    def read(self, positions: Sequence[int] | None = None) -> BlobRead:
        """Of all pages, or some."""
        which = range(len(self.pages)) if positions is None else positions
        blank = [[memoryview(bytearray(LAYOUT.page_bytes))] for _ in which]
        return BlobRead(self.key, IDENTITY, len(self.pages), which, [self.hashes[at] for at in which], blank)


def chunk(pages: int = 4, seed: int = 1) -> Chunk:
    """Pages that shrink: half of their bytes are noise."""
    noise = os.urandom(LAYOUT.page_bytes // 2)

    def page(at: int) -> bytes:
        made = bytearray(bytes([at]) * LAYOUT.page_bytes)
        made[::2] = noise
        return bytes(made)

    return Chunk([f"{seed:032x}{at:032x}" for at in range(pages)], [page(at % 256) for at in range(pages)])


def put(backend: Backend, *chunks: Chunk, deadline: Deadline | None = None) -> list[Status]:
    return backend.put([one.put_item() for one in chunks], deadline)


def outcome(backend: Backend, of: Chunk, positions: Sequence[int] | None = None) -> Status:
    """How a read ends; where it is OK every page has been compared."""
    read = of.read(positions)
    (status,) = backend.get([read.item()])
    if status is Status.OK:
        which = range(len(of.pages)) if positions is None else positions
        assert [bytes(page[0]) for page in read.pages] == [of.pages[at] for at in which]
        assert read.outcomes == [None] * len(which)
    return status


def reason(read: BlobRead) -> MissReason | None:
    return next(filter(None, read.outcomes), None)


@pytest.fixture
def keys() -> HeldKeys:
    return HeldKeys("first", {"first": os.urandom(32)})


@pytest.fixture
def locksmith(keys: HeldKeys) -> Locksmith:
    return Locksmith(keys, "tenant")


@pytest.fixture
def disk(tmp_path: Path) -> Backend:
    return DiskBackend(tmp_path / "tier", 64 << 20, min_free_bytes=0)
