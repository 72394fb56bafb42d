"""Ways to keep blobs in a Mooncake pool: our backend, and the library's own calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sgkv.backends.base import Buffer, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.mooncake import MooncakeBackend, MooncakeOptions
from sgkv.backends.mooncake.library import NativeStore, load, placement, set_up
from sgkv.bench.contest import Contender, Page
from sgkv.bench.effort import BenchError
from sgkv.bench.memory import address_of
from sgkv.store.reading import whole
from sgkv.testing.mooncake import MooncakeMaster, StorageNode

NODE_BYTES = 1 << 30
_PATIENCE = 120.0


@contextmanager
def own_pool(folder: Path) -> Iterator[MooncakeOptions]:
    """A master and one storage node in processes of their own, and how to connect to them."""
    with (
        MooncakeMaster(folder, lease_ms=10_000, flags=["-eviction_high_watermark_ratio=0.95"]) as master,
        StorageNode(folder, master.address, NODE_BYTES),
    ):
        yield MooncakeOptions(master=master.address, admin=master.admin.url)


class OurPool(Contender):
    """`MooncakeBackend`, as a tier's guard calls it: with a deadline, from registered memory."""

    def __init__(self, options: MooncakeOptions, memory: Buffer, pages: Sequence[Page]) -> None:
        self.backend = MooncakeBackend(options)
        self.backend.register_memory(memory)
        self._pages = pages
        self._stored: list[str] = []

    def put(self, keys: Sequence[str]) -> None:
        items = [PutItem(key, page) for key, page in zip(keys, self._pages, strict=True)]
        _require({Status.OK}, self.backend.put(items, Deadline(_PATIENCE)), "put")
        self._stored += keys

    def get(self, keys: Sequence[str]) -> None:
        items = [GetItem(key, whole(page)) for key, page in zip(keys, self._pages, strict=True)]
        _require({Status.OK}, self.backend.get(items, Deadline(_PATIENCE)), "get")

    def clear(self) -> None:
        self.backend.delete(self._stored)
        self._stored = []


class RawPool(Contender):
    """`batch_put_from` and `batch_get_into` of registered memory: the plainest code there is."""

    def __init__(self, options: MooncakeOptions, memory: Buffer, pages: Sequence[Page]) -> None:
        library = load(options)
        self.store = library.MooncakeDistributedStore()
        if set_up(self._native, options) or self.store.register_buffer(address_of(memory), len(memory)):
            raise BenchError("the library itself could not be set up")
        self._placement = placement(library, options)
        self._addresses = [address_of(buffer) for (buffer,) in pages]
        self._sizes = [len(buffer) for (buffer,) in pages]
        self._stored: list[str] = []

    @property
    def _native(self) -> NativeStore:
        native: NativeStore = self.store
        return native

    def put(self, keys: Sequence[str]) -> None:
        codes = self.store.batch_put_from(list(keys), self._addresses, self._sizes, self._placement)
        _require({0}, codes, "batch_put_from")
        self._stored += keys

    def get(self, keys: Sequence[str]) -> None:
        sizes = self.store.batch_get_into(list(keys), self._addresses, self._sizes)
        _require(set(self._sizes), sizes, "batch_get_into")

    def clear(self) -> None:
        self.store.batch_remove(self._stored, True)
        self._stored = []

    def close(self) -> None:
        self.store.close()


def _require(wanted: set[object], found: Sequence[object], what: str) -> None:
    other = next((each for each in found if each not in wanted), None)
    if other is not None:
        raise BenchError(f"{what}: one blob ended as {other}")
