"""SGLang's own device and host pools, small and without a server.

Three layers, two heads of 32; MLA rows are 64 + 32. Constructors and layouts of SGLang 0.5.23,
``sglang/srt/mem_cache/{memory_pool,swa_memory_pool}.py`` and ``pool_host/{mha,mla,mamba,dsa}.py``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool, MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host.dsa import DSAIndexerPoolHost
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import AsymmetricMHATokenToKVPoolHost, MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.runtime_context import get_context

from sgkv.sglang.cpu import reserve_little_memory

reserve_little_memory()
MHA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
ASYMMETRIC_LAYOUTS = ("page_first", "page_first_direct")
MLA_LAYOUTS = ("layer_first", "page_first", "page_first_direct")
INDEXER_LAYOUTS = ("page_first", "page_first_direct")
MAMBA_LAYOUTS = ("page_first", "page_first_direct")

LAYERS, HEADS, DIM, V_DIM, LORA, ROPE = 3, 2, 32, 16, 64, 32


class Pools(NamedTuple):
    """A device pool and the host pool that mirrors it."""

    device: Any
    host: Any


def mha(
    layout: str = "page_first",
    page_size: int = 16,
    *,
    pages: int = 16,
    dtype: torch.dtype = torch.float32,
    heads: int = HEADS,
    dim: int = DIM,
    layers: int = LAYERS,
    start_layer: int = 0,
) -> Pools:
    device = MHATokenToKVPool(
        pages * page_size, page_size, dtype, heads, dim, layers, "cpu", enable_memory_saver=False,
        start_layer=start_layer, end_layer=start_layer + layers,
    )  # fmt: skip
    return Pools(device, _mha_host(MHATokenToKVPoolHost, device, layout, page_size, pages))


class OtherHost(MHATokenToKVPoolHost):
    """A kind of pool that we have no layout of, as SGLang's own subclasses are."""


def other(layout: str = "layer_first", page_size: int = 16, *, pages: int = 16) -> Pools:
    device = mha(page_size=page_size, pages=pages).device
    return Pools(device, _mha_host(OtherHost, device, layout, page_size, pages))


def asymmetric(
    layout: str = "page_first", page_size: int = 16, *, pages: int = 16, dtype: torch.dtype = torch.float32
) -> Pools:
    """Values narrower than keys: K and V are two buffers."""
    device = MHATokenToKVPool(
        pages * page_size, page_size, dtype, HEADS, DIM, LAYERS, "cpu", enable_memory_saver=False,
        v_head_dim=V_DIM,
    )  # fmt: skip
    return Pools(device, _mha_host(AsymmetricMHATokenToKVPoolHost, device, layout, page_size, pages))


def mla(
    layout: str = "page_first",
    page_size: int = 16,
    *,
    pages: int = 16,
    dtype: torch.dtype = torch.float32,
    layers: int = LAYERS,
    start_layer: int = 0,
) -> Pools:
    device = MLATokenToKVPool(
        pages * page_size, page_size, dtype, LORA, ROPE, layers, "cpu", enable_memory_saver=False,
        start_layer=start_layer, end_layer=start_layer + layers,
    )  # fmt: skip
    host = MLATokenToKVPoolHost(
        _info(device), 1.0, 0, page_size, layout, target_layer_num=layers,
        override_kv_cache_dim=device.kv_cache_dim, **_host_options(device, page_size, pages),
    )  # fmt: skip
    return Pools(device, host)


def sliding_pools(
    page_size: int = 16, *, pages: int = 16, dtype: torch.dtype = torch.float32, heads: int = HEADS
) -> Any:
    """Device pools of a model of which one layer attends to everything, two to a window."""
    return SWAKVPool(
        pages * page_size, pages * page_size, page_size, dtype, heads, DIM,
        swa_attention_layer_ids=[1, 2], full_attention_layer_ids=[0], device="cpu",
    )  # fmt: skip


def sliding_window(
    layout: str = "page_first",
    page_size: int = 16,
    *,
    pages: int = 16,
    dtype: torch.dtype = torch.float32,
    heads: int = HEADS,
) -> tuple[Pools, Pools]:
    """(full, swa): one layer attends to everything, two to a window."""
    both = sliding_pools(page_size, pages=pages, dtype=dtype, heads=heads)
    full, swa = both.full_kv_pool, both.swa_kv_pool
    return (
        Pools(full, _mha_host(MHATokenToKVPoolHost, full, layout, page_size, pages)),
        Pools(swa, _mha_host(MHATokenToKVPoolHost, swa, layout, page_size, pages)),
    )


def mamba(
    layout: str = "page_first", *, slots: int = 16, state: int = 8, dtype: torch.dtype = torch.float32
) -> Pools:
    """Recurrent state: one slot a page, temporal and convolution states of different dtypes."""
    device = MambaStateBufferInfo(
        temporal=torch.zeros(LAYERS, slots, 4, 16, state, dtype=dtype),
        conv=(torch.zeros(LAYERS, slots, 32, 3, dtype=torch.bfloat16),),
    )
    host = MambaPoolHost(device, 2.0, 0, device_capacity=slots, pin_memory=False, layout=layout)
    return Pools(device, host)


def indexer(layout: str = "page_first", *, pages: int = 16) -> tuple[Pools, Pools]:
    """(latent, index keys) of sparse attention: pages of 64, the second in the slots of the first."""
    with get_context().override_server_args():  # the pool asks how context is split
        device = DSATokenToKVPool(
            pages * 64, 64, LORA, torch.float32, ROPE, LAYERS, "cpu", index_head_dim=128,
            enable_memory_saver=False, kv_cache_dim=LORA + ROPE,
        )  # fmt: skip
    kv = mla(layout, 64, pages=pages)
    declared = device.host_pool_decls()[1]
    return kv, Pools(device, DSAIndexerPoolHost(declared, kv.host, pin_memory=False))


def _info(device: Any) -> Any:
    return device.get_device_pool_infos()[0].buffer_info


def _host_options(device: Any, page_size: int, pages: int) -> dict[str, Any]:
    return {
        "pin_memory": False,
        "device_capacity_tokens": device.size,
        "start_layer": device.start_layer,
        "end_layer": device.end_layer,
        "host_token_capacity": pages * page_size,
    }


def _mha_host(cls: type, device: Any, layout: str, page_size: int, pages: int) -> Any:
    return cls(_info(device), 1.0, 0, page_size, layout, **_host_options(device, page_size, pages))


def slots(pages: Sequence[int], page_size: int) -> torch.Tensor:
    """The token slots of host or device pages, as SGLang passes them: int64, page by page."""
    starts = torch.tensor(list(pages), dtype=torch.int64) * page_size
    return (starts[:, None] + torch.arange(page_size)).reshape(-1)


def page_bytes(host: Any, page: int) -> bytes:
    """One page as SGLang itself reads it out."""
    if isinstance(host, AsymmetricMHATokenToKVPoolHost):  # which has no flat pages
        size = host.page_size
        at = page if host.layout == "page_first_direct" else slice(page * size, (page + 1) * size)
        return b"".join(_raw(buffer[at]) for buffer in (host.k_buffer, host.v_buffer))
    return _raw(host.get_data_page(page * host.page_size))


def fill(pools: Pools, seed: int) -> None:
    """Random bits in every host buffer; NaNs among them are as good as any."""
    generator = torch.Generator().manual_seed(seed)
    for buffer in _buffers(pools.host):
        raw = buffer.reshape(-1).view(torch.uint8)
        raw.copy_(torch.randint(0, 256, raw.shape, generator=generator, dtype=torch.uint8))


def blank(pools: Pools) -> None:
    for buffer in _buffers(pools.host):
        buffer.zero_()


def _buffers(host: Any) -> Sequence[torch.Tensor]:
    if isinstance(host, DSAIndexerPoolHost):
        return host.get_hybrid_pool_buffer()
    return [host.kv_buffer] if isinstance(host.kv_buffer, torch.Tensor) else host.kv_buffer


def _raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()
