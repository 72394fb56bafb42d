"""The 8-bit formats rows can be packed in, and how numbers become codes, in plain torch."""

from __future__ import annotations

import enum

import torch

from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.pool import PagedPool

SMALLEST = 2.0**-100
"""What the largest number of a head is at least taken for: scales stay normal numbers."""
SCALE_BYTES = 4
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


class Format(enum.Enum):
    """Codes of one byte, with one float32 scale a token, head, layer and plane.

    The scale is the largest magnitude over `levels`; a number is its code times the scale.
    """

    INT8 = "int8"
    """-127 to 127, rounded half to even."""
    FP8_E4M3 = "fp8_e4m3"
    """4 bits of exponent and 3 of mantissa, no infinities; rounded half to even."""

    @property
    def levels(self) -> float:
        """The largest code as a number."""
        return 127.0 if self is Format.INT8 else 448.0


def quantized_geometry(pool: PagedPool, page_size: int) -> ChunkGeometry:
    """Sizes and offsets of chunks with 8-bit rows: codes of K and V, then scales of K and V.

    As a `sgkv.chunk.layout.PageLayout` its planes have rows of (dim, dim, 4, 4) bytes a head, so the store
    can rearrange it like any other page. Raises ValueError for a pool that is not of floating point, or a
    head dim that four does not divide.
    """
    if pool.dtype not in FLOATS:
        raise ValueError(f"only pools of {', '.join(map(str, FLOATS))} can be quantized, not of {pool.dtype}")
    if any(plane.dim % SCALE_BYTES for plane in pool.planes):
        raise ValueError(f"a head dim that {SCALE_BYTES} does not divide would misalign the scales")
    codes = [plane.heads * plane.dim for plane in pool.planes]
    scales = [plane.heads * SCALE_BYTES for plane in pool.planes]
    return ChunkGeometry(page_size, pool.layers, (*codes, *scales))


def encode(numbers: torch.Tensor, code: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 codes of float32 ``[..., dim]``, and the float32 scales ``[...]``."""
    largest = numbers.abs().amax(-1).clamp(min=SMALLEST)
    scales = largest / code.levels
    quotients = numbers / scales[..., None]
    if code is Format.INT8:
        return quotients.round().to(torch.int8).view(torch.uint8), scales
    return quotients.to(torch.float8_e4m3fn).view(torch.uint8), scales


def decode(codes: torch.Tensor, scales: torch.Tensor, code: Format) -> torch.Tensor:
    """float32 ``[..., dim]`` of uint8 codes."""
    kind = torch.int8 if code is Format.INT8 else torch.float8_e4m3fn
    return codes.view(kind).to(torch.float32) * scales[..., None]
