"""Chunk blobs as the store writes them, and tiers to keep them in."""

from __future__ import annotations

import os
from pathlib import Path

from sgkv.backends.base import Backend, BlobInfo, GetItem, Part, PutItem, Status
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.blob import BlobIdentity, put_item
from sgkv.chunk.layout import Order, PageLayout
from sgkv.keys import chunk_keys, page_keys

NAMESPACE, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
LAYOUT = PageLayout(Order.LAYER, "float32", 16, 2, 2, (64, 32))
PAGES = 4
SIZE = 4096 + PAGES * LAYOUT.page_bytes


def hashes(number: int, pages: int = PAGES) -> list[str]:
    return [f"{number * 100 + page + 1:064x}"[::-1] for page in range(pages)]


def chunk(number: int, namespace: str = NAMESPACE, *, pages: int = PAGES, expires_at: int = 0) -> PutItem:
    """Blob number so-and-so, with bytes of its own; the same ones each time but for its creation."""
    content = [memoryview(bytes([number % 251]) * LAYOUT.page_bytes) for _ in range(pages)]
    names = hashes(number, pages)
    (key,) = chunk_keys(namespace, names[-1:]) if pages > 1 else page_keys(namespace, names)
    identity = BlobIdentity(namespace, LAYOUT, "tests", clock=lambda: 1_700_000_000)
    return put_item(key, identity, names, [[page] for page in content], expires_at)


def key_of(number: int, namespace: str = NAMESPACE) -> str:
    return chunk(number, namespace).key


def disk(folder: Path, capacity: int = 64 << 20, **options: object) -> DiskBackend:
    return DiskBackend(folder, capacity, min_free_bytes=0, **options)


def fill(backend: Backend, count: int, namespace: str = NAMESPACE, first: int = 0) -> list[str]:
    """Put so many blobs; their keys."""
    items = [chunk(number, namespace) for number in range(first, first + count)]
    assert backend.put(items) == [Status.OK] * count
    return [item.key for item in items]


def contents(backend: Backend) -> dict[str, bytes]:
    """Every blob of a tier."""
    return {blob.key: read(backend, blob) for blob in backend.scan()}


def read(backend: Backend, blob: BlobInfo) -> bytes:
    raw = bytearray(blob.size)
    assert backend.get([GetItem(blob.key, [Part(0, memoryview(raw))])]) == [Status.OK]
    return bytes(raw)


def path_of(folder: Path, key: str) -> Path:
    return folder / "blobs" / key


def set_used(folder: Path, key: str, seconds: float) -> None:
    """Make a file look as if it had last been used at that Unix time."""
    os.utime(path_of(folder, key), (seconds, seconds))


def flip(path: Path, offset: int) -> None:
    """Change one bit of a file, leaving its times."""
    info = path.stat()
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
