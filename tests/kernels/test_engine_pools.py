"""Pools as engines have them: SGLang's own objects, and the shapes of vLLM's tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sgkv.chunk.convert import convert_page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.sglang.cpu import install as install_row_copies
from sgkv.triton_kernels.packing import chunk_geometry, pack, unpack
from sgkv.triton_kernels.pool import PagedPool
from tests.sglang import pools as make
from tests.sglang.pools import Pools, page_bytes, slots
from tests.sglang.test_layouts import device_rows, from_device, random_device

PAGE = 16
PAGES = [3, 9, 4, 1]
ROWS = {"mha": (make.HEADS, (128, 128)), "asymmetric": (make.HEADS, (128, 64)), "mla": (1, (384,))}
"""Heads, and bytes of a head's row in K and V; float32."""


@pytest.fixture(scope="module", autouse=True)
def row_copies() -> None:
    install_row_copies()


def kernel_pool(pools: Pools) -> PagedPool:
    device = pools.device
    if hasattr(device, "k_buffer"):
        return PagedPool(device.k_buffer, device.v_buffer)
    return PagedPool(device.kv_buffer)


def packed(pool: PagedPool) -> torch.Tensor:
    size = chunk_geometry(pool, PAGE).chunk_bytes(len(PAGES) * PAGE)
    chunk = torch.zeros(size, dtype=torch.uint8)
    pack(pool, slots(PAGES, PAGE), chunk, page_size=PAGE)
    return chunk


@pytest.mark.parametrize("kind", ROWS)
def test_pages_of_sglang_are_packed_as_hicache_stores_them(kind: str) -> None:
    """So a chunk that one of the two ways has written can be read by the other."""
    pools: Pools = getattr(make, kind)("page_first", PAGE)
    random_device(pools)
    from_device(pools, PAGES, range(len(PAGES)))
    heads, rows = ROWS[kind]
    by_token = PageLayout(Order.TOKEN, "float32", PAGE, make.LAYERS, heads, rows)
    by_layer = PageLayout(Order.LAYER, "float32", PAGE, make.LAYERS, heads, rows)
    pages = packed(kernel_pool(pools)).view(len(PAGES), -1)
    for at, page in enumerate(pages):
        stored = memoryview(page_bytes(pools.host, at))
        assert page.numpy().tobytes() == convert_page(stored, by_token, by_layer)


@pytest.mark.parametrize("kind", ROWS)
def test_pages_of_sglang_come_back_to_other_pages(kind: str) -> None:
    pools: Pools = getattr(make, kind)("page_first", PAGE)
    random_device(pools)
    pool, others = kernel_pool(pools), [2, 5, 6, 7]
    wanted = device_rows(pools, PAGES)
    unpack(pool, slots(others, PAGE), packed(pool), page_size=PAGE)
    for row, want in zip(device_rows(pools, others), wanted, strict=True):
        assert torch.equal(row, want)


def planes_first(kv: torch.Tensor) -> tuple[PagedPool, Callable[[torch.Tensor], torch.Tensor]]:
    """``[2, blocks, block, heads, dim]``: all of K, then all of V."""
    return PagedPool([kv[0].flatten(0, 1)], [kv[1].flatten(0, 1)]), lambda at: at


def blocks_first(kv: torch.Tensor) -> tuple[PagedPool, Callable[[torch.Tensor], torch.Tensor]]:
    """``[blocks, 2, block, heads, dim]``: K and V of a block take turns, in one run of rows."""
    flat = kv.transpose(0, 1).contiguous().flatten(0, 2)
    pool = PagedPool([flat[:-PAGE]], [flat[PAGE:]])
    return pool, lambda at: at // PAGE * 2 * PAGE + at % PAGE


@pytest.mark.parametrize("laid_out", [planes_first, blocks_first])
def test_blocks_of_vllm_are_packed_alike(laid_out: Callable[..., object]) -> None:
    kv = torch.randn(2, 10, PAGE, 2, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    pool, in_pool = laid_out(kv)
    at = slots(PAGES, PAGE)
    chunk = torch.zeros(chunk_geometry(pool, PAGE).chunk_bytes(len(at)), dtype=torch.uint8)
    pack(pool, in_pool(at), chunk, page_size=PAGE)
    assert torch.equal(chunk, kv[:, PAGES].transpose(0, 1).contiguous().flatten().view(torch.uint8))
