"""Pools, slots and chunks that a few numbers describe, so that they can be made in another process."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sgkv.triton_kernels.packing import chunk_geometry
from sgkv.triton_kernels.pool import PagedPool


@dataclass(frozen=True, slots=True)
class Shape:
    """A pool and which of its tokens are moved."""

    tokens: int = 12
    page_size: int = 4
    layers: int = 2
    heads: int = 2
    dims: tuple[int, ...] = (16, 16)
    """Head dim of each plane: (K, V), or (latent,)."""
    dtype: torch.dtype = torch.bfloat16
    gap: int = 0
    """Elements between the rows of a strided pool."""
    first_layer: int = 0
    last_layer: int | None = None
    seed: int = 0
    device: str = "cpu"

    @property
    def picked(self) -> range:
        return range(self.first_layer, self.layers if self.last_layer is None else self.last_layer)

    @property
    def slots(self) -> int:
        return self.tokens + 7

    def pool(self, seed: int, magnitude: float = 3.0) -> PagedPool:
        """Tensors of normally distributed numbers times `magnitude`, or of random bytes for uint8."""
        random = torch.Generator().manual_seed(self.seed * 1000 + seed)
        planes = ([self._layer(dim, random, magnitude) for _ in range(self.layers)] for dim in self.dims)
        return PagedPool(*planes)

    def some_slots(self, seed: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(self.seed * 1000 + seed)
        return torch.randperm(self.slots, generator=random)[: self.tokens].contiguous()

    def chunk(self, pool: PagedPool, fill: int = 0xA5) -> torch.Tensor:
        size = chunk_geometry(pool, self.page_size).chunk_bytes(self.tokens)
        return torch.full((size,), fill, dtype=torch.uint8, device=pool.device)

    def _layer(self, dim: int, random: torch.Generator, magnitude: float) -> torch.Tensor:
        row = self.heads * dim
        numbers = torch.randn(self.slots, row + self.gap, generator=random) * magnitude
        if self.dtype is torch.uint8:
            numbers = torch.randint(0, 256, numbers.shape, generator=random)
        wide = numbers.to(self.dtype).to(self.device)
        return wide[:, :row].unflatten(1, (self.heads, dim))


def contents(pool: PagedPool) -> list[torch.Tensor]:
    """A copy of the bytes of every layer of every plane, in host memory."""
    layers = [tensor.cpu().clone() for plane in pool.planes for tensor in plane.tensors]
    return [layer.reshape(len(layer), -1).view(torch.uint8) for layer in layers]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))
