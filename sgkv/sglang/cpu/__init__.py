"""SGLang on a machine without a GPU: a supported development and CI mode, never for serving.

Real are the server, scheduler, radix cache, HiCache controller, host pools and storage calls.
Not real are the device<->host row copies (torch, `copies`), pinned memory (there is none), CUDA
streams (no-ops) and everything behind the import-only `stand_ins`.

Nothing here acts unless the environment of `cpu_environment` is set.
"""

from __future__ import annotations

from sgkv.sglang.cpu.environment import cpu_environment
from sgkv.sglang.cpu.plugin import install, reserve_little_memory

__all__ = ["cpu_environment", "install", "reserve_little_memory"]
