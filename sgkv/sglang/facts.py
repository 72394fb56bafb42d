"""What SGLang can tell about the model it serves, read once when the backend is built."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sglang
import torch

logger = logging.getLogger("sgkv")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Everything outside the pools that decides whether KV is interchangeable."""

    model: Path | None
    """Local folder or file of the weights; None where there is none to read."""
    draft_model: Path | None
    has_draft: bool
    revision: str
    quantization: str
    random_weights: bool
    """The weights were made up at start (`--load-format dummy`): nothing can be shared."""
    model_overrides: str
    kv_cache_dtype: str
    """As configured: ``auto`` or a name; needed where the pool stores plain bytes."""
    kv_scales: Path | None
    producer: str
    """``sglang/<version>``"""
    numerics: str
    """Kernels, compute dtype and device kind: what makes KV bit-stable."""


def read_facts() -> EngineFacts | None:
    """Facts of the server this process belongs to; None outside one, or where SGLang moved them."""
    try:
        from sglang.srt.runtime_context import get_exec, get_model, get_spec

        return _facts(get_model(), get_exec().kernel, get_spec())
    except (ImportError, AttributeError, RuntimeError, ValueError, AssertionError) as error:
        logger.warning(
            "sgkv: SGLang does not say which model this is (%s); nothing is shared with other processes. "
            "Set model.weights to a revision string to share.",
            error,
        )
        return None


def _facts(model: Any, kernels: Any, spec: Any) -> EngineFacts:
    draft = spec.speculative_draft_model_path
    attention = "/".join(
        f"{backend}"
        for backend in (
            kernels.attention_backend,
            kernels.prefill_attention_backend,
            kernels.decode_attention_backend,
        )
    )
    scales = model.quantization_param_path
    return EngineFacts(
        model=local_path(model.model_path, model.revision),
        draft_model=local_path(draft, None) if draft else None,
        has_draft=bool(draft),
        revision=str(model.revision),
        quantization=str(model.quantization),
        random_weights=str(model.load_format) == "dummy",
        model_overrides=str(model.json_model_override_args),
        kv_cache_dtype=str(model.kv_cache_dtype),
        kv_scales=Path(scales) if scales else None,
        producer=f"sglang/{sglang.__version__}",
        numerics=f"sglang {sglang.__version__} {attention} {model.dtype} {device_kind()}",
    )


def local_path(name: str, revision: str | None) -> Path | None:
    """Where a model's files lie: the path itself, or the hub cache's snapshot of a repository."""
    path = Path(name)
    if path.exists():
        return path
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (ImportError, OSError, ValueError):
        return None


def device_kind() -> str:
    """The kind of processor, as far as it decides rounding."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        vendor = "rocm" if torch.version.hip else "cuda"
        return f"{vendor} {major}.{minor}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"
