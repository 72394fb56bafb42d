"""Which part of the model this rank holds, and how its ranks agree."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.dp_attention import is_dp_attention_enabled
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.runtime_context import get_parallel

from sgkv.sglang.linking.pools import LinkedPool


def rank_of(params: Any, pools: list[LinkedPool]) -> HiCacheStorageConfig:
    """What HiCache would say of this rank (SGLang 0.5.23, `HiCacheController._generate_storage_config`).

    It has to be described alike, or what one of them stores is no hit for the other.
    """
    parallel = get_parallel()
    spread = is_dp_attention_enabled()
    return HiCacheStorageConfig(
        tp_rank=parallel.attn_tp_rank if spread else parallel.tp_rank,
        tp_size=parallel.attn_tp_size if spread else parallel.tp_size,
        pp_rank=parallel.pp_rank,
        pp_size=parallel.pp_size,
        attn_cp_rank=params.attn_cp_rank,
        attn_cp_size=params.attn_cp_size,
        is_mla_model=not pools[0].heads_sharded,
        enable_storage_metrics=bool(params.enable_metrics),
        is_page_first_layout=False,
        model_name=None,
        dcp_size=parallel.attn_dcp_size,
        dcp_rank=parallel.attn_dcp_rank,
    )


class Agreement:
    """All ranks that hold parts of one request's KV. Scheduler thread, in the same order on every rank."""

    def __init__(self, params: Any) -> None:
        groups = [params.attn_cp_cache_group, params.attn_tp_cache_group]
        chosen = [group for group in groups if _several(group)]
        self._groups = chosen or [group for group in (params.tp_cache_group,) if _several(group)]

    def on(self, verdict: bool) -> bool:
        """Whether the verdict is True on every rank. Waits for them, as SGLang's own reductions do."""
        if not self._groups:
            return verdict
        flag = torch.tensor([int(verdict)], dtype=torch.int)
        for group in self._groups:
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MIN, group=group)
        return bool(flag)


def _several(group: Any) -> bool:
    return group is not None and torch.distributed.get_world_size(group=group) > 1
