"""Which of vLLM's KV cache groups hold what, and how much of each a prefix needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgkv.vllm.facts import row_shape
from sgkv.vllm.rows import RowShape


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share block tables."""

    index: int
    layers: tuple[str, ...]
    """Names of vLLM's, in the order of the model."""
    shape: RowShape
    window: int
    """Tokens before its end that a prefix needs of these layers; 0 for all."""


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


def page_tokens(extra: Any, block_tokens: int) -> int:
    """Tokens of a page: ``page_tokens`` of kv_connector_extra_config, else SGLang's usual 64.

    Raises ValueError where pages and blocks do not divide each other.
    """
    tokens = int(extra.get("page_tokens", 64))
    if tokens < 1 or (tokens % block_tokens and block_tokens % tokens):
        raise ValueError(
            f"pages of {tokens} tokens and vLLM's blocks of {block_tokens} do not divide each other: set "
            f'"page_tokens" in kv_connector_extra_config to a multiple of {block_tokens}, on every engine'
        )
    return tokens
