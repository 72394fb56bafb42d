"""The environment variables under which SGLang runs on a CPU."""

from __future__ import annotations

import os
from pathlib import Path

STAND_INS = "SGKV_SGLANG_STAND_INS"
"""Set to 1, `site/sitecustomize.py` answers imports of missing GPU packages with stand-ins."""

CPU_ENGINE = "SGLANG_USE_CPU_ENGINE"
"""SGLang's own switch: `is_cpu()` and the platform choice read only this, not ``--device cpu``."""

SITE = Path(__file__).parent / "site"


def cpu_environment(tp: int = 1) -> dict[str, str]:
    """What to add to `os.environ` of a process that imports or starts SGLang without a GPU.

    `tp` is the number of tensor-parallel ranks: SGLang wants one NUMA node a rank unless the
    cores of each are named. ``PYTHONPATH`` keeps what this process has.
    """
    path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    env = {
        "PYTHONPATH": path,
        STAND_INS: "1",
        CPU_ENGINE: "1",
        # The import-only triton convinces torch.compile that it could be used.
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    cores = sorted(os.sched_getaffinity(0))
    if tp > 1:
        env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(_core_ranges(cores, tp))
    env["OMP_NUM_THREADS"] = str(max(1, len(cores) // tp))
    return env


def _core_ranges(cores: list[int], ranks: int) -> list[str]:
    """Split `cores` evenly, in SGLang's notation; ranks share cores where there are too few."""
    share = max(1, len(cores) // ranks)
    starts = [rank * share % len(cores) for rank in range(ranks)]
    return [",".join(map(str, cores[start : start + share])) for start in starts]
