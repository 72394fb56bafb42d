"""What SGLang can tell about the model it serves, read once when the backend is built."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sglang
import torch

from sgkv.model import ModelFacts
from sgkv.weights import local_path, process_start

logger = logging.getLogger("sgkv")

_ELSEWHERE = ("dummy", "remote_instance", "private")
"""Load formats that take the weights from no file we know of."""
_LOADING = (
    "quantization", "modelopt_quant", "quantize_and_serve", "modelopt_checkpoint_restore_path",
    "rl_quant_profile", "decrypted_config_file", "decrypted_draft_config_file",
)  # fmt: skip
_DRAFT_LOADING = ("speculative_draft_model_quantization", "uno_lora_path")
_KERNELS = {
    "kernel": (
        "attention_backend", "prefill_attention_backend", "decode_attention_backend",
        "prefill_kv_cache_dequant_dtype", "fp8_gemm_runner_backend", "fp4_gemm_runner_backend",
        "bf16_gemm_backend", "dsa_prefill_backend", "dsa_decode_backend",
    ),
    "mamba": (
        "mamba_backend", "mamba_ssm_dtype", "enable_mamba_cache_stochastic_rounding",
        "linear_attn_backend", "linear_attn_prefill_backend", "linear_attn_decode_backend",
    ),
    "moe": ("moe_runner_backend", "kt_weight_path", "kt_method"),
    "comm": ("enable_quant_communications",),
    "features": ("enable_tf32_matmul",),
    "deterministic": ("enable_deterministic_inference", "rl_on_policy_target"),
}  # fmt: skip
"""Settings that choose among kernels which round differently, by group of `get_exec()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts(ModelFacts):
    """What a server of SGLang's says of its model. Adapters are those of ``--lora-paths``, known by name."""

    kv_cache_dtype: str
    """As configured: ``auto`` or a name; needed where the pool stores plain bytes."""


def read_facts() -> EngineFacts | None:
    """Facts of the server this process belongs to; None outside one, or where SGLang moved them."""
    try:
        from sglang.srt.runtime_context import get_exec, get_lora, get_model, get_spec

        return _facts(get_model(), get_exec(), get_spec(), get_lora())
    except (ImportError, AttributeError, RuntimeError, ValueError, AssertionError) as error:
        logger.warning("sgkv: SGLang does not say which model this is: %s", error)
        return None


def kv_heads(pool: str) -> int | None:
    """How many kv heads the model has in a pool of this name; None where SGLang does not say."""
    try:
        from sglang.srt.runtime_context import process_model_config

        model = process_model_config()
        heads = {"kv": model.get_total_num_kv_heads, "swa": lambda: model.get_swa_num_kv_heads(1)}
        return int(heads[pool]()) if pool in heads else None
    except (ImportError, AttributeError, RuntimeError, OSError, ValueError, AssertionError) as error:
        logger.warning("sgkv: SGLang does not say how many kv heads this model has: %s", error)
        return None


def _facts(model: Any, execution: Any, spec: Any, lora: Any) -> EngineFacts:
    draft = spec.speculative_draft_model_path
    cache = model.download_dir
    scales = model.quantization_param_path
    kernels = (
        setting
        for group, names in _KERNELS.items()
        for setting in _settings(getattr(execution, group, None), names)
    )
    return EngineFacts(
        model=local_path(model.model_path, model.revision, cache),
        drafts=(local_path(draft, spec.speculative_draft_model_revision, cache),) if draft else (),
        adapters=tuple(local_path(adapter.lora_path, None, cache) for adapter in lora.lora_paths or ()),
        loading=" ".join([*_settings(model, _LOADING), *_settings(spec, _DRAFT_LOADING)]),
        doubt=_doubt(model, spec),
        overrides=str(model.json_model_override_args),
        kv_cache_dtype=str(model.kv_cache_dtype),
        kv_scales=Path(scales) if scales else None,
        producer=f"sglang/{sglang.__version__}",
        numerics=" ".join(
            [f"sglang {sglang.__version__} {model.model_impl} {model.dtype} {device_kind()}", *kernels]
        ),
        started=process_start(),
    )


def _doubt(model: Any, spec: Any) -> str:
    formats = {model.load_format, spec.speculative_draft_load_format}
    if model.weight_cache_mode == "client" or not formats.isdisjoint(_ELSEWHERE):
        return "its weights are those of no file: made up at start, or taken over from another process"
    return ""


def _settings(group: Any, names: Iterable[str]) -> list[str]:
    """``name=value`` of those that are set; a version of SGLang may not have all of them."""
    values = ((name, getattr(group, name, None)) for name in names)
    return [f"{name}={value}" for name, value in values if value]


def device_kind() -> str:
    """The kind of processor, as far as it decides rounding."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        vendor = "rocm" if torch.version.hip else "cuda"
        return f"{vendor} {major}.{minor}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"
