"""The kernels as models need them, described without a pool: for compiling them where no GPU is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from sgkv.triton_kernels.binaries import TARGETS, Figures, compiled, figures_of
from sgkv.triton_kernels.copying import CopyPlan
from sgkv.triton_kernels.formats import SCALE_BYTES, Format
from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.kernels.copying import copy_rows_kernel
from sgkv.triton_kernels.kernels.quantizing import quantize_rows_kernel
from sgkv.triton_kernels.kernels.rotating import rotate_keys_kernel
from sgkv.triton_kernels.launching import OPTIONS
from sgkv.triton_kernels.pool import Plane
from sgkv.triton_kernels.quantizing import QuantizePlan
from sgkv.triton_kernels.rotating import constants_of


@dataclass(frozen=True, slots=True)
class Model:
    """One rank's KV of a model, bf16."""

    layers: int
    heads: int
    dims: tuple[int, ...]
    page_size: int = 64
    rotary: tuple[int, int] = (0, 64)
    """First element and number of pairs that carry the position."""
    interleaved: bool = False

    @property
    def planes(self) -> tuple[Plane, ...]:
        return tuple(_plane(self.heads, dim) for dim in self.dims)


MODELS: Mapping[str, Model] = {
    "llama8b": Model(layers=32, heads=8, dims=(128, 128)),
    "llama70b_tp8": Model(layers=80, heads=1, dims=(128, 128)),
    "deepseek_mla": Model(layers=61, heads=1, dims=(576,), rotary=(512, 32), interleaved=True),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel with all that is known when it is compiled."""

    kernel: Any
    pointers: Mapping[str, str]
    constants: Mapping[str, Any]

    @classmethod
    def of(cls, kernel: str, model: Model, target: str) -> Variant:
        """`kernel` is one of `VARIANTS`, `target` one of `binaries.TARGETS`."""
        return VARIANTS[kernel](model, TARGETS[target].warp_size)

    def compiled(self, target: str) -> Mapping[str, Any]:
        """Its forms for one of `binaries.TARGETS`, as `binaries.compiled` has them."""
        return compiled(self.kernel, target, self.pointers, self.constants, OPTIONS)

    def figures(self, target: str) -> Figures:
        """What its binary for one of `binaries.TARGETS` says."""
        return figures_of(self.compiled(target))


_INDEX = {"addresses": "*i64", "slots": "*i64", "rejected": "*i64"}


def copy_variant(model: Model, lanes: int, *, to_pool: bool) -> Variant:
    """Pack, or unpack, of all planes of a model."""
    planes = model.planes
    geometry = ChunkGeometry(model.page_size, model.layers, tuple(plane.row_bytes for plane in planes))
    plan = CopyPlan.of(geometry, range(len(planes)), planes[0], 16, lanes)
    return Variant(copy_rows_kernel, {**_INDEX, "chunk": "*i64"}, {**plan.constants, "to_pool": to_pool})


def quantize_variant(model: Model, lanes: int, *, code: Format, to_pool: bool) -> Variant:
    """Quantizing pack, or dequantizing unpack, of all planes of a model."""
    planes = model.planes
    codes = [plane.heads * plane.dim for plane in planes]
    scales = [plane.heads * SCALE_BYTES for plane in planes]
    geometry = ChunkGeometry(model.page_size, model.layers, (*codes, *scales))
    plan = QuantizePlan.of(geometry, range(len(planes)), planes[0], torch.bfloat16, code, lanes)
    pointers = {**_INDEX, "codes": "*i8", "scales": "*fp32"}
    return Variant(quantize_rows_kernel, pointers, {**plan.constants, "to_pool": to_pool})


def rotate_variant(model: Model, lanes: int) -> Variant:
    """Turning of keys, or of the part of latents that carries the position."""
    first, pairs = model.rotary
    constants = constants_of(
        model.planes[0], torch.bfloat16, lanes, pairs=pairs, first=first, interleaved=model.interleaved
    )
    return Variant(rotate_keys_kernel, {**_INDEX, "cosines": "*fp32", "sines": "*fp32"}, constants)


VARIANTS: Mapping[str, Callable[[Model, int], Variant]] = {
    "pack": partial(copy_variant, to_pool=False),
    "unpack": partial(copy_variant, to_pool=True),
    "pack_int8": partial(quantize_variant, code=Format.INT8, to_pool=False),
    "unpack_int8": partial(quantize_variant, code=Format.INT8, to_pool=True),
    "pack_fp8": partial(quantize_variant, code=Format.FP8_E4M3, to_pool=False),
    "unpack_fp8": partial(quantize_variant, code=Format.FP8_E4M3, to_pool=True),
    "rotate": rotate_variant,
}
"""By the name of what they do; each takes a `Model` and the threads of a warp."""


def _plane(heads: int, dim: int) -> Plane:
    row = 2 * heads * dim
    return Plane((), heads, dim, row, row, alignment=16)
