"""A paged pool on a device as pages in the order that chunks have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.packing import chunk_geometry, pack, unpack
from sgkv.triton_kernels.pool import PagedPool

if TYPE_CHECKING:
    import torch


class DevicePages:
    """Planes of one pool, one tensor a layer each, whose slots make up pages. Any thread.

    A page is its planes one after the other, each ``[layer][token][row]``. Slots are int64, `page_size`
    a page, on the pool's device or in host memory. All copies are asynchronous on the device's current
    stream. The constructor and all methods raise ValueError for what does not fit, as the kernels do.
    """

    def __init__(self, *planes: Sequence[torch.Tensor], page_size: int) -> None:
        self.page_size = page_size
        self._pool = PagedPool(*planes)
        self.geometry: ChunkGeometry = chunk_geometry(self._pool, page_size)
        # One pool a layer, so that a single layer of many pages is one dense buffer and one transfer.
        self._single = [PagedPool(*([tensors[at]] for tensors in planes)) for at in range(self.layers)]

    @property
    def layers(self) -> int:
        return self._pool.layers

    @property
    def device(self) -> torch.device:
        return self._pool.device

    @property
    def slots(self) -> int:
        """Slots of the pool, those of its dummy page included."""
        return int(self._pool.slots)

    @property
    def rejected(self) -> torch.Tensor | None:
        """int64 ``[1]`` on the device: slots out of range that kernels have passed over; None to leave it."""
        return self._pool.rejected

    @property
    def page_bytes(self) -> int:
        return sum(self.geometry.plane_bytes)

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer of a page, over all planes."""
        return sum(self.geometry.layer_bytes)

    def layer_runs(self, layer: int) -> list[slice]:
        """Where one layer lies in a page: a run in each plane."""
        sizes, starts = self.geometry.layer_bytes, self.geometry.starts
        return [
            slice(start + layer * size, start + (layer + 1) * size)
            for start, size in zip(starts, sizes, strict=True)
        ]

    def pack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Copy whole pages into `buffer`, uint8 on the device."""
        pack(self._pool, slots, buffer, page_size=self.page_size)

    def unpack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Fill whole pages from `buffer`."""
        unpack(self._pool, slots, buffer, page_size=self.page_size)

    def unpack_layer(self, layer: int, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """Fill one layer of the pages from `buffer`, which is ``[page][plane][token][row]``."""
        unpack(self._single[layer], slots, buffer, page_size=self.page_size)
