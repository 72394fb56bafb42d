"""Launching the rotating kernel."""

from __future__ import annotations

from typing import Any

import torch
import triton

from sgkv.triton_kernels.kernels.rotating import rotate_keys_kernel
from sgkv.triton_kernels.launching import KINDS, LANES, OPTIONS, on, programs_for, tile
from sgkv.triton_kernels.pool import Plane
from sgkv.triton_kernels.rotation import Turn

_PAIRS_A_THREAD = 8
"""As many numbers of 16 bits as one access of 128 bits moves."""


def constants_of(
    plane: Plane, dtype: torch.dtype, lanes: int, *, pairs: int, first: int, interleaved: bool
) -> dict[str, Any]:
    """The kernel's compile-time arguments; `lanes` are the threads of a warp."""
    block = triton.next_power_of_2(pairs)
    return {
        "heads": plane.heads,
        "dim": plane.dim,
        "stride": plane.stride_bytes // dtype.itemsize,
        "first": first,
        "half": pairs,
        "interleaved": interleaved,
        "kind": KINDS[dtype],
        "bfloat16": dtype is torch.bfloat16,
        "alignment": plane.alignment,
        "block_rows": max(1, tile(lanes, _PAIRS_A_THREAD) // max(block, 16)),
        "block_half": block,
    }


def rotate(turn: Turn, *, programs: int | None = None) -> None:
    """As `rotation_reference.rotate`, on the current stream of the pool's device."""
    if not len(turn.slots):
        return
    pool, rotation = turn.pool, turn.rotation
    plane = pool.planes[0]
    constants = constants_of(
        plane,
        pool.dtype,
        LANES,
        pairs=len(rotation.cosines),
        first=rotation.first,
        interleaved=rotation.interleaved,
    )
    items = triton.cdiv(len(turn.slots) * plane.heads, constants["block_rows"]) * len(turn.layers)
    with on(pool.device):
        rotate_keys_kernel[(programs_for(pool.device, items, programs),)](
            pool.addresses,
            turn.slots,
            rotation.cosines,
            rotation.sines,
            pool.rejected,
            len(turn.slots),
            pool.slots,
            turn.layers.start,
            items,
            **constants,
            **OPTIONS,
        )
