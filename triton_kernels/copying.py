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
from sgkv.triton_kernels.launching import LANES, OPTIONS, on, programs_for, tile
from sgkv.triton_kernels.pool import Plane
from sgkv.triton_kernels.transfer import Transfer, runs

_WORDS = {8: (torch.int64, tl.int64), 4: (torch.int32, tl.int32), 2: (torch.int16, tl.int16)}
_BYTE = (torch.uint8, tl.uint8)
_WORDS_A_THREAD = 8
"""With twice as many in flight a thread takes more than 64 registers."""
_MAX_STEP = 256
_MAX_UNROLLED = 32
"""Columns are tiled exactly unless that unrolls into more steps than this."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How neighbouring planes of equal shape are copied by one launch."""

    planes: range
    word_bytes: int
    constants: dict[str, Any]
    """The kernel's compile-time arguments but for `to_pool`."""

    @classmethod
    def of(cls, geometry: ChunkGeometry, planes: range, plane: Plane, alignment: int, lanes: int) -> CopyPlan:
        """`plane` stands for all of `planes`; `alignment` is of every address, row and page in bytes;
        `lanes` are the threads of a warp.
        """
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
            "block_tokens": max(1, tile(lanes, _WORDS_A_THREAD) // max(step, 4)),
            "step": step,
        }
        return cls(planes, size, constants)


def pack(transfer: Transfer, *, programs: int | None = None) -> None:
    """As `reference.pack`, on the current stream of the pool's device."""
    with on(transfer.pool.device):
        _copy(transfer, programs, to_pool=False)


def unpack(transfer: Transfer, *, programs: int | None = None) -> None:
    """As `reference.unpack`, on the current stream of the pool's device."""
    with on(transfer.pool.device):
        _copy(transfer, programs, to_pool=True)


def plans(transfer: Transfer) -> Iterator[CopyPlan]:
    """One a launch."""
    planes, geometry = transfer.pool.planes, transfer.geometry
    for run in runs([plane.shape for plane in planes]):
        plane = planes[run.start]
        packed = [*(geometry.starts[at] for at in run), geometry.page_bytes, transfer.chunk.data_ptr()]
        yield CopyPlan.of(geometry, run, plane, gcd(plane.alignment, *packed), LANES)


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
