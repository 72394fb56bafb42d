"""A request to move rows between a pool and a chunk, checked before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.pool import PagedPool


@dataclass(frozen=True, slots=True)
class Transfer:
    """Tokens of a pool, the chunk they belong in, and which layers of both."""

    pool: PagedPool
    slots: torch.Tensor
    """int64 ``[tokens]`` on the pool's device: where each token of the chunk lies in the pool."""
    chunk: torch.Tensor
    """uint8, just the pages that the tokens take."""
    geometry: ChunkGeometry
    layers: range

    @classmethod
    def checked(
        cls,
        pool: PagedPool,
        slots: torch.Tensor,
        chunk: torch.Tensor,
        geometry: ChunkGeometry,
        layers: range | None,
    ) -> Transfer:
        """Raises ValueError with what is wrong, instead of a fault in a kernel.

        Slots in host memory are looked at here. Slots on a GPU are not, since that would wait for the
        device: kernels pass over those out of range and count them in `PagedPool.rejected`.
        """
        on_device = checked_slots(pool, slots)
        _check_chunk(pool, chunk)
        size = geometry.chunk_bytes(slots.numel())
        if chunk.numel() < size:
            raise ValueError(
                f"{slots.numel()} tokens take {geometry.pages(slots.numel())} pages of {geometry.page_bytes} "
                f"bytes, {size} in all, but the chunk has {chunk.numel()}"
            )
        return cls(pool, on_device, chunk[:size], geometry, checked_layers(pool, layers))

    @property
    def tokens(self) -> int:
        return len(self.slots)


def checked_slots(pool: PagedPool, slots: torch.Tensor) -> torch.Tensor:
    """`slots` on the pool's device; raises ValueError for a wrong dtype, shape, device or index."""
    if slots.dtype != torch.int64 or slots.dim() != 1 or not slots.is_contiguous():
        raise ValueError(
            f"slots are one dense row of int64, not {slots.dtype} of shape {[*slots.shape]} and strides "
            f"{slots.stride()}"
        )
    if slots.device == pool.device and pool.device.type != "cpu":
        return slots
    if slots.device.type != "cpu":
        raise ValueError(f"slots lie on {slots.device}, the pool on {pool.device}")
    if slots.numel():
        low, high = map(int, torch.aminmax(slots))
        if low < 0 or high >= pool.slots:
            raise ValueError(f"slots {low} to {high} do not lie in a pool of {pool.slots}")
    return slots.to(pool.device, non_blocking=True)


def checked_layers(pool: PagedPool, layers: range | None) -> range:
    """All layers for None; raises ValueError for a range that is empty, has gaps or leaves the pool."""
    if layers is None:
        return range(pool.layers)
    if layers.step != 1 or not 0 <= layers.start < layers.stop <= pool.layers:
        raise ValueError(f"{layers} is not a run of the pool's {pool.layers} layers")
    return layers


def runs(shapes: Sequence[object]) -> list[range]:
    """Neighbouring planes with the same shape, to be served by one launch."""
    starts = [at for at in range(len(shapes)) if at == 0 or shapes[at] != shapes[at - 1]]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(shapes)], strict=True)]


def _check_chunk(pool: PagedPool, chunk: torch.Tensor) -> None:
    if chunk.dtype != torch.uint8 or chunk.dim() != 1 or not chunk.is_contiguous():
        raise ValueError(
            f"a chunk is one dense row of uint8, not {chunk.dtype} of shape {[*chunk.shape]} and strides "
            f"{chunk.stride()}"
        )
    if chunk.device != pool.device:
        raise ValueError(f"the chunk lies on {chunk.device}, the pool on {pool.device}")
