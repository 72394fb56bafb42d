"""What vLLM can tell about the model it serves, and how a tier hears of it.

vLLM 0.32 hands a secondary tier an `OffloadingConfig`, which knows neither the revision nor the
quantization of the model. `SgkvOffloadingConnector` has the whole configuration and holds it up with
`announced` while vLLM builds the tier beneath it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import vllm
from vllm.platforms import current_platform

from sgkv.model import ModelFacts
from sgkv.vllm.chains import Chains
from sgkv.vllm.rows import Packing, RowShape
from sgkv.weights import local_path, process_start

_LOADED_FROM_FILES = ("auto", "safetensors", "hf", "pt", "fastsafetensors", "runai_streamer")
_FUSED = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
"""Backends whose pages hold K and V of a head side by side (their `get_kv_cache_shape` in 0.33)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts(ModelFacts):
    """What an engine of vLLM's says of its model, and of the rows that its KV lies in."""

    rows: RowShape | None
    """How keys and values lie in a row, where that is known for certain."""
    unshared: str
    """Why other engines cannot use these rows; empty where they can."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What the connector knows and a tier below it needs."""

    facts: EngineFacts
    chains: Chains


_announced: ContextVar[Engine | None] = ContextVar("sgkv_vllm_engine", default=None)


@contextmanager
def announced(engine: Engine) -> Iterator[None]:
    """Tiers that are built inside belong to `engine`."""
    token = _announced.set(engine)
    try:
        yield
    finally:
        _announced.reset(token)


def announced_engine() -> Engine | None:
    """The engine around this construction; None below vLLM's own connector."""
    return _announced.get()


def read_facts(config: Any, kv_cache: Any) -> EngineFacts:
    """Facts of vLLM's `VllmConfig` and `KVCacheConfig`."""
    model = config.model_config
    rows, unshared = _rows(config, kv_cache)
    return EngineFacts(
        model=local_path(model.model, model.revision, config.load_config.download_dir),
        loading=f"quantization={model.quantization}" if model.quantization else "",
        doubt=_doubt(config),
        overrides=str(model.hf_overrides or {}),
        numerics=_numerics(config),
        producer=f"vllm/{vllm.__version__}",
        started=process_start(),
        rows=rows,
        unshared=unshared,
    )


def _doubt(config: Any) -> str:
    if str(config.load_config.load_format) not in _LOADED_FROM_FILES:
        return f"the load format is {config.load_config.load_format}"
    if config.lora_config is not None:
        return "adapters may be loaded, and vLLM knows them by name only"
    if not config.cache_config.prefix_caching_hash_algo.startswith("sha256"):
        return f"{config.cache_config.prefix_caching_hash_algo} hashes differ from process to process"
    return ""


def _numerics(config: Any) -> str:
    """Version, dtype, device and what chooses among kernels that round differently."""
    model, attention = config.model_config, config.attention_config.backend
    compiled = "eager" if model.enforce_eager else f"compiled {config.compilation_config.mode}"
    draft = config.speculative_config.method if config.speculative_config else "none"
    return (
        f"vllm {vllm.__version__} {model.dtype} {_device()} attention {attention} {compiled} "
        f"draft {draft} quantization {model.quantization}"
    )


def _device() -> str:
    if current_platform.is_cpu():
        return f"cpu {torch.backends.cpu.get_cpu_capability()}"
    return f"{current_platform.device_type} {current_platform.get_device_capability()}"


def _rows(config: Any, kv_cache: Any) -> tuple[RowShape | None, str]:
    """The shape of a row for one group of plain attention layers, else None and the reason."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    groups = kv_cache.kv_cache_groups
    if len(groups) != 1 or type(groups[0].kv_cache_spec) is not FullAttentionSpec:
        return None, "the model has layers other than full attention with keys and values"
    if config.parallel_config.world_size != 1:
        return None, "it runs on several ranks"
    layout = config.cache_config.kv_cache_layout
    if not current_platform.is_cpu() and layout != "LBHNC":
        return None, f"its pages are laid out as {layout}"
    return row_shape(config, groups[0])


def row_shape(config: Any, group: Any) -> tuple[RowShape | None, str]:
    """The shape of the pages of one of vLLM's `KVCacheGroupSpec`, else None and why it is not known."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    spec = group.kv_cache_spec
    if type(spec) not in (FullAttentionSpec, SlidingWindowSpec):
        return None, f"the model has layers of {type(spec).__name__}"
    if spec.dtype != config.model_config.dtype or spec.kv_quant_mode.is_per_token_head:
        return None, f"its pool is {spec.dtype}, the model {config.model_config.dtype}"
    if spec.head_size != getattr(spec, "head_size_v", spec.head_size):
        return None, "keys and values differ in width"
    packing, reason = _packing(config, spec)
    if packing is None:
        return None, reason
    if config.speculative_config is not None or config.lora_config is not None:
        return None, "drafts or adapters are on"
    shape = RowShape(
        packing=packing,
        dtype=str(spec.dtype).removeprefix("torch."),
        item=spec.dtype.itemsize,
        layers=len(group.layer_names),
        block_tokens=spec.block_size,
        heads=spec.num_kv_heads,
        head_dim=spec.head_size,
    )
    return (shape, "") if _ordered(group.layer_names) else (None, "its layers are not in their order")


def _packing(config: Any, spec: Any) -> tuple[Packing | None, str]:
    """VLLM's CPU kernels pack a page by instruction set (`cpu_attn.py`); its GPU backends fuse K and V."""
    if current_platform.is_cpu():
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        isa = _get_attn_isa(spec.dtype, spec.block_size, spec.head_size, config.cache_config.cache_dtype)
        return (Packing.VEC, "") if isa in ("vec", "vec16") else (None, f"CPU pages are packed for {isa}")
    backend = getattr(config.attention_config.backend, "name", None)
    if backend in _FUSED:
        return Packing.FUSED, ""
    return (
        None,
        f"the page layout of attention backend {backend} is not known (name one: {', '.join(_FUSED)})",
    )


def _ordered(names: list[str]) -> bool:
    """Whether layers stand in the order of their numbers, as a row holds them."""
    numbers = [[int(part) for part in name.split(".") if part.isdigit()] for name in names]
    return numbers == sorted(numbers)
