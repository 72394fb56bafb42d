"""Which of vLLM's KV cache groups hold what, and how much of each a prefix needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgkv.vllm.chains import PAGE_TOKENS
from sgkv.vllm.rows import RowShape, require_fit


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share block tables."""

    index: int
    layers: tuple[str, ...]
    """Names of vLLM's, in the order of the model."""
    shape: RowShape
    window: int
    """Tokens before its end that a prefix needs of these layers; 0 for all."""


def page_tokens(extra: Any, block_tokens: int) -> int:
    """Tokens of a page: ``page_tokens`` of kv_connector_extra_config, else `PAGE_TOKENS`.

    Raises ValueError where pages and blocks do not divide each other.
    """
    tokens = int(extra.get("page_tokens", PAGE_TOKENS))
    require_fit(tokens, block_tokens)
    return tokens
