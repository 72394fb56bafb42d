"""Pages of a paged pool into one contiguous chunk of 8-bit codes and scales, and back."""

from __future__ import annotations

import torch

from sgkv.triton_kernels import quantized_reference
from sgkv.triton_kernels.formats import SCALE_BYTES, Format, quantized_geometry
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.transfer import Transfer


def pack_quantized(
    pool: PagedPool,
    slots: torch.Tensor,
    chunk: torch.Tensor,
    code: Format,
    *,
    page_size: int,
    layers: range | None = None,
    programs: int | None = None,
) -> None:
    """As `packing.pack`, but one byte an element and one float32 scale a token, head, layer and plane.

    The order is that of `quantized_geometry`, which also has the sizes. Numbers must be finite: what
    becomes of a head with an infinity or a NaN is not said, but its neighbours are not touched by it.
    Raises ValueError for arguments that do not fit.
    """
    transfer = _checked(pool, slots, chunk, page_size, layers)
    if pool.device.type == "cpu":
        quantized_reference.pack(transfer, code)
    else:
        from sgkv.triton_kernels import quantizing

        quantizing.pack(transfer, code, programs=programs)


def unpack_quantized(
    pool: PagedPool,
    slots: torch.Tensor,
    chunk: torch.Tensor,
    code: Format,
    *,
    page_size: int,
    layers: range | None = None,
    programs: int | None = None,
) -> None:
    """The reverse of `pack_quantized`: each number is code times scale, rounded to the pool's dtype."""
    transfer = _checked(pool, slots, chunk, page_size, layers)
    if pool.device.type == "cpu":
        quantized_reference.unpack(transfer, code)
    else:
        from sgkv.triton_kernels import quantizing

        quantizing.unpack(transfer, code, programs=programs)


def _checked(
    pool: PagedPool, slots: torch.Tensor, chunk: torch.Tensor, page_size: int, layers: range | None
) -> Transfer:
    transfer = Transfer.checked(pool, slots, chunk, quantized_geometry(pool, page_size), layers)
    if transfer.chunk.data_ptr() % SCALE_BYTES:
        raise ValueError(f"a quantized chunk begins at a multiple of {SCALE_BYTES} bytes")
    return transfer
