"""Making SGLang importable, or saying why it is not."""

from __future__ import annotations

import os
from importlib.util import find_spec

from sgkv.bench.effort import BenchError
from sgkv.sglang.cpu import cpu_environment
from sgkv.sglang.cpu.stand_ins import install_stand_ins


def require_sglang() -> None:
    """Import what the benchmarks use of SGLang; without a GPU, in CPU mode. Raises BenchError."""
    if find_spec("sglang") is None or find_spec("torch") is None:
        raise BenchError("SGLang is not installed (pip install 'sgkv[sglang]')")
    import torch

    if not torch.cuda.is_available():
        os.environ.update({k: v for k, v in cpu_environment().items() if k.startswith("SGLANG_")})
        install_stand_ins()
    try:
        from sglang.srt.mem_cache import hicache_storage, utils  # noqa: F401
    except ImportError as error:
        raise BenchError(f"SGLang is installed but cannot be imported: {error}") from error
