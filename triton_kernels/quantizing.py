"""Launching the quantizing kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton

from sgkv.triton_kernels.formats import SMALLEST, Format
from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.kernels.quantizing import quantize_rows_kernel
from sgkv.triton_kernels.launching import KINDS, LANES, OPTIONS, on, programs_for, tile
from sgkv.triton_kernels.pool import Plane
from sgkv.triton_kernels.transfer import Transfer, runs

_ELEMENTS_A_THREAD = 16
"""As many codes as one access of 128 bits moves."""


class QuantizePlan(NamedTuple):
    """How neighbouring planes of equal shape are moved by one launch."""

    planes: range
    constants: dict[str, Any]
    """The kernel's compile-time arguments but for `to_pool`."""

    @classmethod
    def of(
        cls,
        geometry: ChunkGeometry,
        planes: range,
        plane: Plane,
        dtype: torch.dtype,
        code: Format,
        lanes: int,
    ) -> QuantizePlan:
        """`plane` stands for all of `planes`; `lanes` are the threads of a warp."""
        scales = len(geometry.rows) // 2 + planes.start
        block = triton.next_power_of_2(plane.dim)
        constants = {
            "heads": plane.heads,
            "dim": plane.dim,
            "stride": plane.stride_bytes // dtype.itemsize,
            "page_size": geometry.page_size,
            "page_bytes": geometry.page_bytes,
            "code_start": geometry.starts[planes.start],
            "code_plane": geometry.plane_bytes[planes.start],
            "scale_start": geometry.starts[scales],
            "scale_plane": geometry.plane_bytes[scales],
            "kind": KINDS[dtype],
            "bfloat16": dtype is torch.bfloat16,
            "alignment": plane.alignment,
            "block_rows": max(1, tile(lanes, _ELEMENTS_A_THREAD) // max(block, 32)),
            "block_dim": block,
            "levels": code.levels,
            "smallest": SMALLEST,
            "fp8": code is Format.FP8_E4M3,
        }
        return cls(planes, constants)


def pack(transfer: Transfer, code: Format, *, programs: int | None = None) -> None:
    """As `quantized_reference.pack`, on the current stream of the pool's device."""
    with on(transfer.pool.device):
        _move(transfer, code, programs, to_pool=False)


def unpack(transfer: Transfer, code: Format, *, programs: int | None = None) -> None:
    """As `quantized_reference.unpack`, on the current stream of the pool's device."""
    with on(transfer.pool.device):
        _move(transfer, code, programs, to_pool=True)


def _plans(transfer: Transfer, code: Format) -> Iterator[QuantizePlan]:
    pool = transfer.pool
    for run in runs([plane.shape for plane in pool.planes]):
        yield QuantizePlan.of(transfer.geometry, run, pool.planes[run.start], pool.dtype, code, LANES)


def _move(transfer: Transfer, code: Format, limit: int | None, *, to_pool: bool) -> None:
    if not transfer.tokens:
        return
    pool, layers = transfer.pool, transfer.layers
    for plan in _plans(transfer, code):
        rows = transfer.tokens * plan.constants["heads"]
        items = triton.cdiv(rows, plan.constants["block_rows"]) * len(layers) * len(plan.planes)
        quantize_rows_kernel[(programs_for(pool.device, items, limit),)](
            pool.addresses,
            transfer.slots,
            transfer.chunk.view(torch.int8),
            transfer.chunk.view(torch.float32),
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
