"""vLLM on a machine without a GPU: a supported development and CI mode, never for serving.

Real are the engine, its scheduler, the OffloadingConnector and its tiering manager, the rows of host
memory and our tier. Not real are the copies between device and rows, which vLLM 0.32 has for GPUs only.
"""

from __future__ import annotations

import os

__all__ = ["cpu_environment"]


def cpu_environment(kv_gib: int = 1) -> dict[str, str]:
    """What to add to `os.environ` of a process that starts vLLM without a GPU, with `kv_gib` GiB of KV."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(kv_gib),
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        # In this project's folder vLLM would take `triton_kernels` there for the package of that name.
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
    }
