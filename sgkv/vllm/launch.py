"""The JSON that makes vLLM use sgkv. Imports neither vllm nor torch: the command line prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHUNK_TOKENS = 256
"""Tokens of an offload chunk: sgkv's own chunk, and a multiple of every block size of vLLM's."""


def transfer_config(
    tier: Mapping[str, Any], host_bytes: int, *, chunk_tokens: int = CHUNK_TOKENS, cpu_engine: bool = False
) -> dict[str, Any]:
    """The value of ``--kv-transfer-config``.

    `tier` is sgkv's configuration, or ``{"config": FILE}``; `host_bytes` of memory are vLLM's own first tier;
    `cpu_engine` is for vLLM on a machine without a GPU.
    """
    spec = {"spec_name": "TieringOffloadingSpec"}
    if cpu_engine:
        spec = {"spec_name": "CpuTieringSpec", "spec_module_path": "sgkv.vllm.cpu.spec"}
    return {
        "kv_connector": "SgkvOffloadingConnector",
        "kv_connector_module_path": "sgkv.vllm.offloading",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            **spec,
            "cpu_bytes_to_use": host_bytes,
            "block_size": chunk_tokens,
            "offload_prompt_only": False,
            "secondary_tiers": [{"type": "SgkvTier", "module_path": "sgkv.vllm.tier", **tier}],
        },
    }


def connector_config(settings: Mapping[str, Any], *, role: str = "kv_both") -> dict[str, Any]:
    """The value of ``--kv-transfer-config`` for the connector, which needs none of vLLM's host memory.

    `settings` is sgkv's configuration, or ``{"config": FILE}``. `role` is ``kv_both``, or that of an engine
    that only computes prompts for others (``kv_producer``) or lets others compute them (``kv_consumer``).
    """
    return {
        "kv_connector": "SgkvConnector",
        "kv_connector_module_path": "sgkv.vllm.connector",
        "kv_role": role,
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": dict(settings),
    }
