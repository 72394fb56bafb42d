"""SGLang's device pools as pages: which tensors are the planes, and which layer of the model is whose.

Pools of SGLang 0.5.23 (``sglang/srt/mem_cache/{memory_pool,swa_memory_pool}.py``). Its own
`resolve_hybrid_device_pool_group` serves no plain model, so none of it is used here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool, MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from sgkv.chunk.layout import Order, PageLayout
from sgkv.sglang.pool import logical_dtype
from sgkv.transfer.pages import DevicePages

KV, SWA, MAMBA = "kv", "swa", "mamba"


class UnservedPoolError(ValueError):
    """A model whose pools the linker cannot serve; the text says what to use instead."""


@dataclass(frozen=True, slots=True)
class LinkedPool:
    """One device pool and what its pages are; a `sgkv.sglang.naming.PlacedPool`."""

    name: str
    pages: DevicePages
    layout: PageLayout
    kind: str
    heads_sharded: bool
    pool: Any
    layers: Mapping[int, int]
    """The pool's layer for each layer of this rank, counted from its first, that has one."""

    @property
    def page_size(self) -> int:
        return self.pages.page_size


def linked_pools(params: Any, kv_cache_dtype: str) -> list[LinkedPool]:
    """The pools that SGLang hands out pages of, from its CacheInitParams.

    `kv_cache_dtype` is the configured one. Raises UnservedPoolError for any other kind of pool.
    """
    kvcache, size = params.token_to_kv_pool_allocator.get_kvcache(), params.page_size
    start = getattr(kvcache, "start_layer", 0)
    if type(kvcache) is SWAKVPool:
        mapped = kvcache.layers_mapping.items()
        full, window = (
            {layer - start: own for layer, (own, is_swa) in mapped if is_swa is wanted}
            for wanted in (False, True)
        )
        found = [
            _attention(KV, kvcache.full_kv_pool, size, full, kv_cache_dtype),
            _attention(SWA, kvcache.swa_kv_pool, size, window, kv_cache_dtype),
        ]
    elif type(kvcache) is HybridLinearKVPool:
        own = {layer - start: at for layer, at in kvcache.full_attention_layer_id_mapping.items()}
        found = [_attention(KV, kvcache.full_kv_pool, size, own, kv_cache_dtype)]
    else:
        layers = {layer: layer for layer in range(getattr(kvcache, "layer_num", 0))}
        found = [_attention(KV, kvcache, size, layers, kv_cache_dtype)]
    if getattr(params.req_to_token_pool, "mamba_pool", None) is not None:
        found.append(_recurrent(params.req_to_token_pool, start))
    return found


def _attention(
    name: str, pool: Any, page_size: int, layers: Mapping[int, int], kv_cache_dtype: str
) -> LinkedPool:
    planes, heads, layout = _planes(pool), 1, Order.LAYER
    if type(pool) is MHATokenToKVPool:
        heads = pool.head_num
    dtype = planes[0][0].dtype
    try:
        pages = DevicePages(*planes, page_size=page_size)
    except ValueError as error:
        raise _unserved(pool, str(error)) from error
    rows = tuple(row // heads for row in pages.geometry.rows)
    shape = PageLayout(layout, logical_dtype(dtype, kv_cache_dtype), page_size, pages.layers, heads, rows)
    return LinkedPool(name, pages, shape, "", type(pool) is MHATokenToKVPool, pool, layers)


def _planes(pool: Any) -> Sequence[Sequence[torch.Tensor]]:
    """Keys and values, or latents; exactly the kinds whose pages have no bytes beside these."""
    if type(pool) is MHATokenToKVPool:
        if getattr(pool, "k_scale_buffer", None) is None and (
            getattr(pool, "native_k_scale_buffer", None) is None
        ):
            return pool.k_buffer, pool.v_buffer
        raise _unserved(pool, "its scales are stored apart")
    if type(pool) is MLATokenToKVPool:
        return (pool.kv_buffer,)
    raise _unserved(pool, "its pages are not known here")


def _recurrent(requests: Any, start: int) -> LinkedPool:
    """State of linear layers: one slot a page, kept bit for bit whatever its dtypes are."""
    beside = (requests.mamba_ckpt_pool is not None, requests.short_conv_pool.enabled)
    if any(beside) or requests.ngram_pool.enabled:
        raise _unserved(requests.mamba_pool, "it has state beside its own")
    cache = requests.mamba_pool.mamba_cache
    states = [state for state in (cache.temporal, *cache.conv) if state.numel()]
    layers = {layer - start: own for layer, own in requests.mamba_map.items()}
    return recurrent_pool(requests.mamba_pool, states, layers)


def recurrent_pool(pool: Any, states: Sequence[torch.Tensor], layers: Mapping[int, int]) -> LinkedPool:
    """`states` are ``[layer, slot, ...]``, of any dtypes."""
    try:
        # Views, or an error: a copy would be all that loads fill.
        planes = [[layer.view(len(layer), -1).view(torch.uint8) for layer in state] for state in states]
        pages = DevicePages(*planes, page_size=1)
    except (ValueError, RuntimeError) as error:
        raise _unserved(pool, str(error)) from error
    dtype = "+".join(str(state.dtype).removeprefix("torch.") for state in states)
    shape = PageLayout(Order.OPAQUE, dtype, 1, 1, 1, tuple(pages.geometry.plane_bytes))
    return LinkedPool(MAMBA, pages, shape, "linked state", True, pool, layers)


def _unserved(pool: Any, why: str) -> UnservedPoolError:
    return UnservedPoolError(
        f"sgkv's linker cannot serve {type(pool).__name__}: {why}. "
        "Use --hicache-storage-backend sgkv instead."
    )
