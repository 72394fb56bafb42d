"""Launching the copy kernel: which word, which tile, how many programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl

from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.kernels.copying import copy_rows_kernel
from sgkv.triton_kernels.pool import Plane
from sgkv.triton_kernels.transfer import Transfer, runs

_WORDS = {8: (torch.int64, tl.int64), 4: (torch.int32, tl.int32), 2: (torch.int16, tl.int16)}
_BYTE = (torch.uint8, tl.uint8)
_TILE_WORDS = 1024
"""Words of a tile: 8 a thread with four warps. Twice as many take more than 64 registers."""
_MAX_STEP = 256
_MAX_UNROLLED = 32
"""Columns are tiled exactly unless that unrolls into more steps than this."""
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
"""How every kernel here is compiled. A fused multiply-add would round otherwise than torch does."""
PROGRAMS_A_PROCESSOR = 8
"""Programs a multiprocessor where the caller sets no limit: enough bytes in flight to fill its memory's
bandwidth."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How neighbouring planes of equal shape are copied by one launch."""

    planes: range
    word_bytes: int
    constants: dict[str, Any]
    """The kernel's compile-time arguments but for `to_pool`."""

    @classmethod
    def of(cls, geometry: ChunkGeometry, planes: range, plane: Plane, alignment: int) -> CopyPlan:
        """`plane` stands for all of `planes`; `alignment` is of every address, row and page in bytes."""
        size = min(alignment, 8)
        row = plane.row_bytes // size
        step = _step(row)
        constants = {
            "row": row,
            "stride": plane.stride_bytes // size,
            "page_size": geometry.page_size,
            "page_words": geometry.page_bytes // size,
            "plane_start": geometry.starts[planes.start] // size,
            "plane_words": geometry.plane_bytes[planes.start] // size,
            "word": _WORDS.get(size, _BYTE)[1],
            "alignment": alignment,
            "block_tokens": max(1, _TILE_WORDS // max(step, 16)),
            "step": step,
        }
        return cls(planes, size, constants)


def pack(transfer: Transfer, *, programs: int | None = None) -> None:
    """As `reference.pack`, on the current stream of the pool's device."""
    _copy(transfer, programs, to_pool=False)


def unpack(transfer: Transfer, *, programs: int | None = None) -> None:
    """As `reference.unpack`, on the current stream of the pool's device."""
    _copy(transfer, programs, to_pool=True)


def plans(transfer: Transfer) -> Iterator[CopyPlan]:
    """One a launch."""
    planes, geometry = transfer.pool.planes, transfer.geometry
    for run in runs([plane.shape for plane in planes]):
        plane = planes[run.start]
        addresses = [planes[at].alignment for at in run]
        packed = [*(geometry.starts[at] for at in run), geometry.page_bytes, transfer.chunk.data_ptr()]
        yield CopyPlan.of(geometry, run, plane, gcd(*addresses, *packed))


def programs_for(device: torch.device, items: int, limit: int | None) -> int:
    """Size of the grid: one program an item, but not more than `limit` or than the device has use for."""
    if limit is None and device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        limit = processors * PROGRAMS_A_PROCESSOR
    return items if limit is None else max(1, min(items, limit))


def _copy(transfer: Transfer, limit: int | None, *, to_pool: bool) -> None:
    if not transfer.tokens:
        return
    pool, layers = transfer.pool, transfer.layers
    for plan in plans(transfer):
        tiles = triton.cdiv(transfer.tokens, plan.constants["block_tokens"])
        items = tiles * len(layers) * len(plan.planes)
        copy_rows_kernel[(programs_for(pool.device, items, limit),)](
            pool.addresses,
            transfer.slots,
            transfer.chunk.view(_WORDS.get(plan.word_bytes, _BYTE)[0]),
            pool.rejected,
            transfer.tokens,
            pool.slots,
            layers.start,
            len(layers),
            plan.planes.start * pool.layers,
            pool.layers,
            items,
            **plan.constants,
            to_pool=to_pool,
            **OPTIONS,
        )


def _step(row: int) -> int:
    """Words of a column tile, a power of two: it divides the row if that does not take too many."""
    exact = min(row & -row, _MAX_STEP)
    return exact if row // exact <= _MAX_UNROLLED else min(_MAX_STEP, triton.next_power_of_2(row))
