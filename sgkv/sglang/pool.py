"""SGLang's host pools as pages: where each page's bytes lie, and in which order.

Shapes and layouts of SGLang 0.5.23 (`sglang/srt/mem_cache/pool_host/`):

====================  ============================  ==========================
layout                MHA (one of K, V)             MLA
====================  ============================  ==========================
layer_first           [L][S][H][D], L runs a plane  [L][S][1][C], L runs
page_first            [S][L][H][D]                  [S][L][1][C]
page_first_direct     [P][L][p][H][D]               [P][L][p][1][C]
page_head             [P][H][p][L][D]               -
====================  ============================  ==========================
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch

from sgkv.chunk.blob import Page
from sgkv.chunk.layout import Order, PageLayout

_ORDERS = {
    "layer_first": Order.LAYER,
    "page_first": Order.TOKEN,
    "page_first_direct": Order.LAYER,
    "page_head": Order.HEAD,
}
_MHA = ("MHATokenToKVPoolHost", "AsymmetricMHATokenToKVPoolHost")
_MLA = ("MLATokenToKVPoolHost",)


class Run(NamedTuple):
    """One contiguous piece of every page: of the page at slot s, it lies at `offset + s * stride`."""

    region: memoryview
    offset: int
    stride: int
    """Bytes a slot."""
    size: int


class Memory(NamedTuple):
    """One buffer of a pool."""

    view: memoryview
    descriptor: int | None
    """Of the memory file that it maps, where other processes can be handed it."""


class HostPool:
    """One registered host pool. Any thread; pages are valid as long as SGLang owns the slots."""

    def __init__(self, pool: Any, name: str, kv_cache_dtype: str) -> None:
        """Raises ValueError or AttributeError for a pool that does not describe its pages."""
        self.pool = pool
        self.name = name
        self.page_size: int = pool.page_size
        self._regions = _regions(pool)
        # SGLang lists k0, v0, k1, v1, ...; a page is all of K, then all of V.
        self._interleaved = type(pool).__name__ in _MHA and pool.layout == "layer_first"
        first = self._described(torch.arange(self.page_size))[0]
        self.layout = _layout(pool, [len(buffer) for buffer in first], kv_cache_dtype)
        # Pools of a shared domain may be laid out anew at runtime: those are asked each time.
        fixed = (
            self.layout.order is not Order.OPAQUE and getattr(pool, "shared_allocation_domain", None) is None
        )
        self._strided = self._find_strides() if fixed else None

    @property
    def kind(self) -> str:
        """What the namespace must know beyond the layout: opaque bytes fit only their own kind."""
        if self.layout.order is not Order.OPAQUE:
            return ""
        return f"{type(self.pool).__name__} {self.pool.layout}"

    @property
    def memory(self) -> list[Memory]:
        """The buffers that all pages lie in."""
        descriptors = _descriptors(self.pool)
        return [Memory(region, descriptors.get(address)) for address, region in self._regions]

    @property
    def heads_sharded(self) -> bool:
        """Whether the pool has a head axis, which tensor parallelism splits over ranks."""
        return type(self.pool).__name__ not in _MLA and hasattr(self.pool, "head_num")

    def pages(self, indices: torch.Tensor) -> list[Page]:
        """Buffers of the pages at `indices`: int64, page_size slots a page, contiguous from a whole page on.

        Raises ValueError for slots that are not whole pages or not in the pool.
        """
        if indices.numel() % self.page_size:
            raise ValueError(f"{self.name}: {indices.numel()} slots are not whole pages of {self.page_size}")
        if self._strided is None:
            return self._described(indices)
        slots = indices[:: self.page_size].tolist()
        if slots and not (min(slots) >= 0 and max(slots) < self.pool.size):
            raise ValueError(f"{self.name}: slots {min(slots)} to {max(slots)} are not all in the pool")
        runs = self._strided
        return [
            [region[(at := offset + slot * stride) : at + size] for region, offset, stride, size in runs]
            for slot in slots
        ]

    def _find_strides(self) -> list[Run] | None:
        """Where the runs of the page at any slot lie, learnt from the pool's own description.

        Asking the pool costs more than copying small pages. None when some page does not lie where
        the first two say.
        """
        count = self.pool.size // self.page_size
        firsts = torch.tensor([0, min(1, count - 1), count // 2, count - 1]) * self.page_size
        indices = (firsts[:, None] + torch.arange(self.page_size)).reshape(-1)
        pages = [[self._located(buffer) for buffer in page] for page in self._described(indices)]
        runs = [
            (region, start, (after - start) // self.page_size, size)
            for (region, start, size), (_, after, _) in zip(pages[0], pages[1], strict=True)
        ]
        predicted = [
            [(region, offset + slot * stride, size) for region, offset, stride, size in runs]
            for slot in firsts.tolist()
        ]
        if predicted != pages:
            return None
        return [Run(self._regions[region][1], *rest) for region, *rest in runs]

    def _described(self, indices: torch.Tensor) -> list[Page]:
        """The pages as the pool describes them."""
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        buffers = list(map(self._buffer, addresses, sizes))
        runs = len(buffers) * self.page_size // max(1, indices.numel())
        pages = [buffers[start : start + runs] for start in range(0, len(buffers), runs or 1)]
        return [page[0::2] + page[1::2] for page in pages] if self._interleaved else list(pages)

    def _located(self, buffer: memoryview) -> tuple[int, int, int]:
        """(which region, offset in it, size) of a buffer of this pool."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        for index, (base, region) in enumerate(self._regions):
            if 0 <= address - base < len(region):
                return index, address - base, len(buffer)
        raise ValueError(f"pool {self.name} named an address outside its buffers")

    def _buffer(self, address: int, size: int) -> memoryview:
        for base, region in self._regions:
            offset = address - base
            if offset >= 0 and offset + size <= len(region):
                return region[offset : offset + size]
        raise ValueError(f"pool {self.name} named an address outside its buffers")


def is_logical(pool: Any) -> bool:
    """An anchor that only hands out indices (DeepSeek-V4): its bytes travel in other pools."""
    return getattr(pool, "kv_buffer", None) is None and getattr(pool, "size_per_token", None) == 0


def flat_page(tensor: torch.Tensor) -> Page:
    """A flat page of the generic path as a page: any dtype, CPU.

    Raises RuntimeError for a tensor that is not contiguous: filling a copy of it would be no hit.
    """
    return [memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())]


def _layout(pool: Any, sizes: Sequence[int], kv_cache_dtype: str) -> PageLayout:
    known = _known_layout(pool, kv_cache_dtype)
    if known is not None and known.page_bytes == sum(sizes):
        return known
    dtypes = [logical_dtype(tensor.dtype, kv_cache_dtype) for tensor in _tensors(pool)]
    return PageLayout(Order.OPAQUE, "+".join(name for name, _ in groupby(dtypes)), 1, 1, 1, tuple(sizes))


def _known_layout(pool: Any, kv_cache_dtype: str) -> PageLayout | None:
    kind, order = type(pool).__name__, _ORDERS.get(getattr(pool, "layout", ""))
    if order is None or kind not in _MHA + _MLA:
        return None
    item = pool.dtype.itemsize
    rows: tuple[int, ...] = (
        (pool.head_dim * item, pool.v_head_dim * item) if kind in _MHA else (pool.kv_cache_dim * item,)
    )
    heads = pool.head_num if kind in _MHA else 1
    dtype = logical_dtype(pool.dtype, kv_cache_dtype)
    return PageLayout(order, dtype, pool.page_size, pool.layer_num, heads, rows)


def logical_dtype(stored: torch.dtype, kv_cache_dtype: str) -> str:
    """A pool may hold both kinds of fp8 as plain bytes: then only the configuration tells them apart."""
    name = str(stored).removeprefix("torch.")
    return f"{name}:{kv_cache_dtype}" if stored in (torch.uint8, torch.int8) else name


def _regions(pool: Any) -> list[tuple[int, memoryview]]:
    """(address, memory) of every buffer of a pool."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in _tensors(pool)}
    return [(address, _memory(address, storage.nbytes())) for address, storage in storages.items()]


def _descriptors(pool: Any) -> dict[int, int]:
    """Memory files of a pool by the address at which each is mapped.

    With ``"allocator": "shm"`` in the extra config SGLang's ShmHostTensorAllocator keeps both
    (``pool_host/common.py``); other allocators have neither.
    """
    allocator = getattr(pool, "allocator", None)
    files, mappings = getattr(allocator, "fds", ()), getattr(allocator, "mms", ())
    return {_address(mapping): file for file, mapping in zip(files, mappings, strict=False)}


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _tensors(pool: Any) -> list[torch.Tensor]:
    """Every buffer of a pool, in its own order: recurrent state has several, of different dtypes."""
    buffers = pool.get_hybrid_pool_buffer() if hasattr(pool, "get_hybrid_pool_buffer") else pool.kv_buffer
    return [buffers] if isinstance(buffers, torch.Tensor) else list(buffers)


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
