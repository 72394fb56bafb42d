"""The kernels as models need them, described without a pool: for compiling them where no GPU is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sgkv.triton_kernels.binaries import Figures, figures_of
from sgkv.triton_kernels.copying import OPTIONS, CopyPlan
from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.kernels.copying import copy_rows_kernel
from sgkv.triton_kernels.pool import Plane


@dataclass(frozen=True, slots=True)
class Model:
    """One rank's KV of a model, bf16."""

    layers: int
    heads: int
    dims: tuple[int, ...]
    page_size: int = 64

    @property
    def planes(self) -> tuple[Plane, ...]:
        return tuple(_plane(self.heads, dim) for dim in self.dims)


MODELS: Mapping[str, Model] = {
    "llama8b": Model(layers=32, heads=8, dims=(128, 128)),
    "llama70b_tp8": Model(layers=80, heads=1, dims=(128, 128)),
    "deepseek_mla": Model(layers=61, heads=1, dims=(576,)),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel with all that is known when it is compiled."""

    kernel: Any
    pointers: Mapping[str, str]
    constants: Mapping[str, Any]

    def figures(self, target: str) -> Figures:
        """Compiled for one of `binaries.TARGETS`."""
        return figures_of(self.kernel, target, self.pointers, self.constants, OPTIONS)


_INDEX = {"addresses": "*i64", "slots": "*i64", "rejected": "*i64"}


def copy_variant(model: Model, *, to_pool: bool) -> Variant:
    """Pack, or unpack, of all planes of a model."""
    planes = model.planes
    geometry = ChunkGeometry(model.page_size, model.layers, tuple(plane.row_bytes for plane in planes))
    plan = CopyPlan.of(geometry, range(len(planes)), planes[0], alignment=16)
    return Variant(copy_rows_kernel, {**_INDEX, "chunk": "*i64"}, {**plan.constants, "to_pool": to_pool})


VARIANTS = {
    "pack": lambda model: copy_variant(model, to_pool=False),
    "unpack": lambda model: copy_variant(model, to_pool=True),
}
"""By the name of what they do; each takes a `Model`."""


def _plane(heads: int, dim: int) -> Plane:
    row = 2 * heads * dim
    return Plane((), heads, dim, row, row, alignment=16)
