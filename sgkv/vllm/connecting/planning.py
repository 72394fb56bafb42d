"""From vLLM's configuration and ours to what the two sides of the connector work by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.v1.metrics.cache_hit_source import CacheHitSource

from sgkv.config import Config
from sgkv.vllm.connecting.groups import Group
from sgkv.vllm.connecting.questions import Questions
from sgkv.vllm.connecting.shelves import Rank
from sgkv.vllm.connecting.tracking import Plan
from sgkv.vllm.facts import row_shape

_SOURCES = {"disk": CacheHitSource.DISK, "mooncake": CacheHitSource.P2P}
_STEPS_SECONDS = 5.0
"""Added to a lookup's deadline: its answer comes with a step of the engine, which may be long."""


class UnservedModelError(ValueError):
    """A model whose KV the connector cannot move; the text says why and what to use instead."""


def served_groups(config: Any, kv_cache: Any) -> list[Group]:
    """The groups of vLLM's `VllmConfig` and `KVCacheConfig`; raises UnservedModelError."""
    found = []
    for index, group in enumerate(kv_cache.kv_cache_groups):
        shape, reason = row_shape(config, group)
        if shape is None:
            raise UnservedModelError(
                f"sgkv's connector cannot serve this model, because {reason}; its tier may: see docs/vllm.md"
            )
        spec = group.kv_cache_spec  # layers with a window in a full-attention group keep all blocks
        window = spec.sliding_window if type(spec).__name__ == "SlidingWindowSpec" else 0
        found.append(Group(index, tuple(group.layer_names), shape, window))
    if config.parallel_config.pipeline_parallel_size != 1:
        raise UnservedModelError("sgkv's connector does not serve pipeline parallelism")
    if len({group.shape.block_tokens for group in found}) != 1:
        raise UnservedModelError("sgkv's connector serves models whose layers have one block size")
    return found


def plan_of(transfer: Any, config: Config, groups: Sequence[Group], page_tokens: int) -> Plan:
    """`transfer` is vLLM's `KVTransferConfig`."""
    below = {tier.type for tier in config.tiers if tier.type != "cpu"}
    source = _SOURCES.get(below.pop()) if len(below) == 1 else None
    return Plan(
        page_tokens=page_tokens,
        block_tokens=groups[0].shape.block_tokens,
        chunk_pages=max(1, config.chunk_tokens // page_tokens),
        loads=transfer.is_kv_consumer,
        saves=transfer.is_kv_producer,
        announces=not transfer.is_kv_consumer,
        below=source or CacheHitSource.EXTERNAL_UNSPECIFIED,
    )


def questions_of(config: Config, ranks: int) -> Questions:
    times = config.engine
    return Questions(ranks, times.exists_deadline + _STEPS_SECONDS, times.get_deadline)


def rank_of(vllm_config: Any) -> Rank:
    """Of this worker, once vLLM has set up its parallel groups."""
    from vllm.distributed import get_tensor_model_parallel_rank

    size = vllm_config.parallel_config.tensor_parallel_size
    index = get_tensor_model_parallel_rank() if size > 1 else 0
    return Rank(index, size, vllm_config.model_config.get_total_num_kv_heads())
