"""A small world for long games: few tokens, tiny pages, tiers that hold a handful of blobs.

What a page holds follows from its hash and from how often the store was cleared, so that any page can be
checked without remembering it, and one from before a clear is told from one after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import shake_128
from pathlib import Path

from sgkv.backends.base import Backend
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.header import HeaderError, decode_header, header_size
from sgkv.chunk.layout import Order, PageLayout
from sgkv.identity import Namespace
from sgkv.keys import chunk_keys, hash_pages, packed_hashes, page_keys
from sgkv.store.session import Session
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier

PAGE_TOKENS = 2
CHUNK_PAGES = 4
LAYOUT = PageLayout(Order.LAYER, "float32", PAGE_TOKENS, 1, 1, (16, 16))
PAGE_BYTES = LAYOUT.page_bytes
FILE_CHARGE = 8192
"""Quota that a blob of this world takes, chunk or page: a block of header and a part of another."""
NAMESPACE = Namespace(
    tenant="t", weights="w", epoch="", architecture="a", numerics="n", kv_dtype="float32", pool="kv",
    page_tokens=PAGE_TOKENS, chunk_tokens=PAGE_TOKENS * CHUNK_PAGES, cell="tp 0/1", geometry="g",
)  # fmt: skip


def content(page_hash: str, generation: int = 0) -> bytes:
    """The bytes of a page, in the `generation` that begins with each clear."""
    return shake_128(f"{generation}/{page_hash}".encode()).digest(PAGE_BYTES)


def sequence(number: int, pages: int, shared: int = 0) -> list[str]:
    """Page hashes of a prompt; all prompts have their first `shared` pages in common."""
    own = range(1_000_000 * (number + 1), 1_000_000 * (number + 1) + (pages - shared) * PAGE_TOKENS)
    return hash_pages([*range(shared * PAGE_TOKENS), *own], PAGE_TOKENS)


def filled(hashes: Sequence[str], generation: int = 0) -> list[list[memoryview]]:
    """Pages to store, each in two buffers."""
    pages = [memoryview(content(page_hash, generation)) for page_hash in hashes]
    return [[page[:16], page[16:]] for page in pages]


def blank(count: int) -> list[list[memoryview]]:
    """Pages to read into, cut elsewhere than `filled`."""
    pages = [memoryview(bytearray(PAGE_BYTES)) for _ in range(count)]
    return [[page[:40], page[40:]] for page in pages]


def open_store(
    folder: Path,
    *,
    arena_bytes: int = 0,
    disk_bytes: int,
    wrap: Callable[[Backend], Backend],
    clock: Callable[[], float],
    ttl: float | None = None,
    write_behind_bytes: int = 1 << 20,
    tail_delay: float = 60.0,
) -> Store:
    """A store over a disk tier, below a cpu tier where `arena_bytes` says so."""
    tiers = [Tier("disk", wrap(DiskBackend(folder, disk_bytes, min_free_bytes=0, io_threads=2)))]
    if arena_bytes:
        cpu = CpuBackend(arena_bytes, prefault=False, clock=clock)
        tiers.insert(0, Tier("cpu", cpu, arena=cpu))
    options = StoreOptions(
        chunk_tokens=PAGE_TOKENS * CHUNK_PAGES,
        ttl=ttl,
        write_behind_bytes=write_behind_bytes,
        tail_delay=tail_delay,
    )
    return Store(tiers, options, clock=clock)


def open_session(store: Store) -> Session:
    return store.open(NAMESPACE, LAYOUT, "game")


def blob_files(folder: Path) -> list[Path]:
    """Every published blob, in a stable order; folders may vanish while it looks."""
    walked = os.walk(folder / "blobs")
    return [Path(above, name) for above, _, names in sorted(walked) for name in sorted(names)]


def blob_sizes(folder: Path) -> Iterator[int]:
    """Of every blob that is still there when it is looked at."""
    for path in blob_files(folder):
        with suppress(FileNotFoundError):
            yield path.stat().st_size


def on_disk(folder: Path, hashes: Sequence[str], generation: int, now: float) -> list[bool]:
    """For each page of a sequence from its start, whether a blob that any reader must accept holds it."""
    found = [False] * len(hashes)
    for at, key in enumerate(page_keys(NAMESPACE.digest, hashes)):
        found[at] = is_good(folder / "blobs" / key, hashes[at : at + 1], generation, now)
    lasts = hashes[CHUNK_PAGES - 1 :: CHUNK_PAGES]
    for nth, key in enumerate(chunk_keys(NAMESPACE.digest, lasts)):
        pages = range(nth * CHUNK_PAGES, (nth + 1) * CHUNK_PAGES)
        if is_good(folder / "blobs" / key, [hashes[at] for at in pages], generation, now):
            for at in pages:
                found[at] = True
    return found


def is_good(path: Path, hashes: Sequence[str], generation: int, now: float) -> bool:
    """Whether a file is exactly the blob of these pages, and not expired. Shares no code with readers."""
    try:
        data = memoryview(path.read_bytes())
        start = header_size(len(hashes))
        header = decode_header(data[:start])
    except (FileNotFoundError, HeaderError):
        return False
    body = b"".join(content(page_hash, generation) for page_hash in hashes)
    ours = header.namespace == NAMESPACE.digest and header.hashes == packed_hashes(hashes)
    return ours and data[start:] == body and not header.expired(now)
