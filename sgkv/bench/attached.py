"""Pages of an engine and the node's daemon, beside plain copies of the same bytes."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from ctypes import memmove
from pathlib import Path

from sgkv.backends.base import Buffer
from sgkv.backends.deadline import Deadline
from sgkv.bench.contest import Contender, Page, Payload
from sgkv.bench.effort import BenchError
from sgkv.bench.memory import address_of, cut
from sgkv.chunk.layout import Order, PageLayout
from sgkv.identity import Namespace
from sgkv.node.store import AttachedStore
from sgkv.store.base import PageSession, PageStore
from sgkv.store.span import Span

_PATIENCE = 60.0
PAGE_TOKENS = 64


class SharedMemory:
    """Memory that a daemon can map, as SGLang's shm allocator makes it: resident, in small pages."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("sgkv-bench", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self.view: Buffer = memoryview(mmap.mmap(self.descriptor, size, flags=flags))

    def pages(self, size: int) -> list[Page]:
        return [[page] for page in cut(self.view, size)]

    def close(self) -> None:
        os.close(self.descriptor)


class Stored(Contender):
    """Pages in a session of a store; every get must be a hit."""

    def __init__(self, session: PageSession, payload: Payload, *, flushed: PageStore | None = None) -> None:
        """With `flushed`, a put ends when that store has everything in its slowest tier."""
        self.session = session
        self._pages = payload.pages
        self._flushed = flushed

    def put(self, keys: Sequence[str]) -> None:
        if not all(self.session.set(Span(keys), self._pages, Deadline(_PATIENCE))):
            raise BenchError("a page was not stored")
        if self._flushed is not None and not self._flushed.flush(_PATIENCE):
            raise BenchError("the pages did not reach the disk")

    def get(self, keys: Sequence[str]) -> None:
        missed = [
            reason for reason in self.session.get(Span(keys), self._pages, Deadline(_PATIENCE)) if reason
        ]
        if missed:
            raise BenchError(f"{len(missed)} pages were missed, the first because {missed[0].value}")

    def clear(self) -> None:
        self.session.clear()


class Copies(Contender):
    """One `memmove` a buffer, to and from shared memory of this process."""

    def __init__(self, payload: Payload) -> None:
        self._memory = SharedMemory(payload.size)
        self._moves: list[tuple[int, int, int]] = []
        at = address_of(self._memory.view)
        for page in payload.pages:
            for buffer in page:
                self._moves.append((at, address_of(buffer), len(buffer)))
                at += len(buffer)

    def put(self, keys: Sequence[str]) -> None:
        for ours, theirs, size in self._moves:
            memmove(ours, theirs, size)

    def get(self, keys: Sequence[str]) -> None:
        for ours, theirs, size in self._moves:
            memmove(theirs, ours, size)

    def close(self) -> None:
        self._memory.close()


def attach(socket: Path) -> AttachedStore:
    return AttachedStore(socket)


def open_session(store: PageStore, page_bytes: int) -> PageSession:
    """Of pages of 64 tokens with one K and one V plane."""
    layout = PageLayout(Order.LAYER, "bfloat16", PAGE_TOKENS, 1, 1, (page_bytes // 2 // PAGE_TOKENS,) * 2)
    namespace = Namespace(
        tenant="bench", weights="bench", epoch="", architecture="", numerics="", kv_dtype="bfloat16",
        page_tokens=PAGE_TOKENS, chunk_tokens=256, pool="kv", cell="", geometry=layout.geometry,
    )  # fmt: skip
    return store.open(namespace, layout, "bench")


def wait_for(session: PageSession, keys: Sequence[str], seconds: float) -> None:
    """Until a restarted daemon has found its files again. Raises BenchError."""
    ends = time.monotonic() + seconds
    while session.lookup(Span(keys), Deadline(_PATIENCE)).pages < len(keys):
        if time.monotonic() > ends:
            raise BenchError("the daemon does not find what it has on disk")
        time.sleep(0.1)
