"""A daemon in this process, real but for that, and stores attached to it."""

import mmap
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from sgkv.backends.cpu import CpuBackend
from sgkv.backends.disk import DiskBackend
from sgkv.node.server import NodeServer
from sgkv.node.service import Rules, Service
from sgkv.node.store import AttachedStore
from sgkv.node.turns import Turns
from sgkv.store.base import PageSession
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from sgkv.testing.waiting import wait_until
from tests.store.conftest import MIB, PAGE_BYTES

POOL_PAGES = 256


class Pool:
    """Memory as SGLang's shm allocator makes it: a memory file, mapped, of whole pages."""

    def __init__(self, pages: int = POOL_PAGES, page_bytes: int = PAGE_BYTES) -> None:
        self.page_bytes = page_bytes
        self.descriptor = os.memfd_create("pool")
        os.ftruncate(self.descriptor, pages * page_bytes)
        self.view = memoryview(mmap.mmap(self.descriptor, pages * page_bytes))

    def pages(self, count: int) -> list[list[memoryview]]:
        """The first `count` pages, each in two buffers."""
        size, half = self.page_bytes, self.page_bytes // 2
        return [
            [self.view[at * size : at * size + half], self.view[at * size + half : (at + 1) * size]]
            for at in range(count)
        ]


class InSharedMemory(PageSession):
    """A session whose pages lie in memory that the daemon has mapped too."""

    def __init__(self, inner: PageSession, pool: Pool) -> None:
        self.inner, self.pool = inner, pool
        self.namespace, self.layout, self.pages_per_chunk = (
            inner.namespace,
            inner.layout,
            inner.pages_per_chunk,
        )

    def get(self, span, pages, deadline):
        own = self.pool.pages(len(pages))
        reasons = self.inner.get(span, own, deadline)
        for page, mine, reason in zip(pages, own, reasons, strict=True):
            if reason is None:
                spread(b"".join(mine), page)
        return reasons

    def set(self, span, pages, deadline):
        own = self.pool.pages(len(pages))
        for page, mine in zip(pages, own, strict=True):
            spread(b"".join(page), mine)
        return self.inner.set(span, own, deadline)

    def lookup(self, span, deadline):
        return self.inner.lookup(span, deadline)

    def contains(self, span, deadline):
        return self.inner.contains(span, deadline)

    def lease(self, span):
        return self.inner.lease(span)

    def pin(self, span, pinned=True):
        return self.inner.pin(span, pinned)

    def clear(self):
        self.inner.clear()


def spread(data: bytes, page: list[memoryview]) -> None:
    at = 0
    for buffer in page:
        buffer[:] = data[at : at + len(buffer)]
        at += len(buffer)


class Attached(AttachedStore):
    """An attached store, with what tests look at of the store behind it."""

    def __init__(self, node: "Node", *, shared_memory: bool, **options: object) -> None:
        # The daemon is this process, which nobody must end for keeping silent.
        super().__init__(node.path, **{"chunk_tokens": 64, "fence": 600.0, **options})
        self.node = node
        self.pool = Pool() if shared_memory else None
        if self.pool:
            self.register_memory(self.pool.view, self.pool.descriptor)

    def open(self, *args, **kwargs):
        session = super().open(*args, **kwargs)
        return InSharedMemory(session, self.pool) if self.pool else session

    def stats(self):
        return self.node.store.stats()


@dataclass
class Node:
    """A daemon's server over a store of its own."""

    path: os.PathLike
    store: Store
    rules: Rules = field(default_factory=Rules)
    turns: Turns = field(default_factory=lambda: Turns(4, 4))

    def __post_init__(self) -> None:
        self.service = Service(self.store, self.rules, self.turns)
        self.server = NodeServer(self.service, self.path)
        self.server.start()

    def stop(self) -> None:
        self.server.stop(5.0)
        self.store.close()

    @property
    def leases(self) -> int:
        return self.store.stats().tiers["cpu"].leases

    def wait_idle(self, seconds: float = 10.0) -> None:
        """Wait until nothing of the arena is held."""
        ends = time.monotonic() + seconds
        while self.leases or self.server.conversations:
            assert time.monotonic() < ends, f"{self.leases} leases, {self.server.conversations} left"
            threading.Event().wait(0.01)


@dataclass
class NodeRig:
    """Opens daemons over one disk folder, each with a store attached to it."""

    path: os.PathLike
    tiers: str
    shared_memory: bool = False
    nodes: list[Node] = field(default_factory=list)
    stores: list[Attached] = field(default_factory=list)

    def node(
        self, *, cpu_bytes=8 * MIB, disk_bytes=64 * MIB, wrap=lambda b: b, clock=time.time,
        rules=None, turns=None, **options,
    ) -> Node:  # fmt: skip
        cpu = CpuBackend(cpu_bytes, prefault=False, shared=True, clock=clock)
        tiers = [Tier("cpu", cpu, arena=cpu)]
        if "disk" in self.tiers:
            tiers.append(Tier("disk", wrap(DiskBackend(self.path / "kv", disk_bytes, min_free_bytes=0))))
        store = Store(tiers, StoreOptions(**{"chunk_tokens": 64, "tail_delay": 60.0, **options}), clock=clock)
        node = Node(self.path / f"{len(self.nodes)}.sock", store, rules or Rules(), turns or Turns(4, 4))
        self.nodes.append(node)
        return node

    def attach(self, node: Node, **options) -> Attached:
        store = Attached(node, shared_memory=self.shared_memory, **options)
        self.stores.append(store)
        return store

    def store(self, **options) -> Attached:
        return self.attach(self.node(**options))

    @staticmethod
    def wait(observe, seconds: float = 5.0) -> None:
        wait_until(observe, "it to happen", seconds)

    def restart(self, store: Attached, **options) -> Attached:
        store.close()
        store.node.stop()
        return self.store(**options)


@contextmanager
def opened(folder, tiers, *, shared_memory=False):
    rig = NodeRig(folder, tiers, shared_memory)
    yield rig
    for store in rig.stores:
        store.close()
    for node in rig.nodes:
        node.stop()


@pytest.fixture(params=["copied", "shared memory"])
def shared_memory(request):
    return request.param == "shared memory"


@pytest.fixture(params=["cpu+disk", "cpu"])
def rig(request, tmp_path, shared_memory):
    with opened(tmp_path, request.param, shared_memory=shared_memory) as rig:
        yield rig


@pytest.fixture
def two_tier_rig(tmp_path, shared_memory):
    with opened(tmp_path, "cpu+disk", shared_memory=shared_memory) as rig:
        yield rig


@pytest.fixture
def node_rig(tmp_path):
    """Attached stores whose pages are copied."""
    with opened(tmp_path, "cpu+disk") as rig:
        yield rig
