"""A real SGLang host pool without a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

from sgkv.bench.contest import Page
from sgkv.bench.memory import at_address

PAGE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What one rank holds of a model's KV, in bf16."""

    layers: int
    heads: int
    head_dim: int

    @property
    def page_bytes(self) -> int:
        return PAGE_TOKENS * self.layers * 2 * self.heads * self.head_dim * 2


SHAPES = {"1MiB": ModelShape(32, 1, 128), "8MiB": ModelShape(32, 8, 128)}
"""Llama 3 8B: one rank of eight, and all of it on one."""
TINY = ModelShape(1, 1, 8)
"""2 KiB a page: next to nothing to move."""


class HostPages:
    """`count` pages of a page-first host pool, all in use. Keeps the pool alive."""

    def __init__(self, shape: ModelShape, count: int) -> None:
        device = MHATokenToKVPool(
            PAGE_TOKENS,
            PAGE_TOKENS,
            torch.bfloat16,
            head_num=shape.heads,
            head_dim=shape.head_dim,
            layer_num=shape.layers,
            device="cpu",
            enable_memory_saver=False,
        )
        # SGLang refuses a pool that leaves less than 10 GB of memory; how much is left is for us to judge.
        with host_memory_budget_scope((count + 2) * shape.page_bytes):
            self.pool: Any = MHATokenToKVPoolHost(
                device.get_device_pool_infos()[0].buffer_info,
                float(count),
                0,
                PAGE_TOKENS,
                "page_first",
                pin_memory=False,
                device_capacity_tokens=device.size,
                start_layer=device.start_layer,
                end_layer=device.end_layer,
            )
        self.indices = torch.arange(count * PAGE_TOKENS)

    def pages(self) -> list[Page]:
        """Each page's K, then its V, where SGLang says they lie."""
        addresses, sizes = self.pool.get_page_buffer_meta(self.indices)
        buffers = list(map(at_address, addresses, sizes))
        return [buffers[start : start + 2] for start in range(0, len(buffers), 2)]
