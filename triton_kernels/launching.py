"""What all launches have in common."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import triton.language as tl

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
"""How every kernel here is compiled. A fused multiply-add would round otherwise than torch does."""
LANES = 64 if torch.version.hip else 32
"""Threads a warp of the GPUs that this torch is for."""
KINDS = {torch.bfloat16: tl.int16, torch.float16: tl.float16, torch.float32: tl.float32}
"""What a pool's elements are to a kernel that computes: bfloat16 is widened and narrowed in integers."""
PROGRAMS_A_PROCESSOR = 8
"""Programs a multiprocessor where the caller sets no limit: enough bytes in flight to fill its memory's
bandwidth."""


def tile(lanes: int, each: int) -> int:
    """What a program moves at once, with `each` a thread of warps of `lanes` threads."""
    return lanes * OPTIONS["num_warps"] * each


def on(device: torch.device) -> AbstractContextManager[object]:
    """Launch on `device`: Triton launches on whichever is current, where other devices' memory faults."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def programs_for(device: torch.device, items: int, limit: int | None) -> int:
    """Size of the grid: one program an item, but not more than `limit` or than the device has use for."""
    if limit is None and device.type == "cuda":
        limit = torch.cuda.get_device_properties(device).multi_processor_count * PROGRAMS_A_PROCESSOR
    return items if limit is None else max(1, min(items, limit))
