"""An engine's paged KV pool, as the kernels see it: equal tensors, one a layer, addressed by token slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

import torch

_WIDEST = 16
"""Bytes of the widest access of a GPU."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The keys, the values or the latents of all layers."""

    tensors: tuple[torch.Tensor, ...]
    """One a layer, all alike: ``[slots, heads, dim]`` or ``[slots, dim]``; a slot's elements are dense."""
    heads: int
    dim: int
    """Elements a head."""
    row_bytes: int
    """Bytes of one token in one layer, all heads."""
    stride_bytes: int
    """From one slot to the next; more than `row_bytes` where a pool interleaves its tensors."""
    alignment: int
    """Bytes, a power of two up to 16, that divide every row's address and length."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """What must be equal for two planes to be served by one launch."""
        return self.heads, self.dim, self.stride_bytes, self.alignment


class PagedPool:
    """K and V tensors of all layers with the table of their addresses; build it once a pool.

    It keeps the tensors alive. All of it may be shared by threads; nothing changes but `rejected`.
    """

    def __init__(self, *planes: Sequence[torch.Tensor]) -> None:
        """``PagedPool(keys, values)``, or ``PagedPool(latents)`` for MLA: one tensor a layer each.

        K and V may differ in head count and head dim. Raises ValueError for tensors the kernels cannot
        address, naming the first that differs: another count, dtype, device, shape or stride, or a slot
        whose elements are not dense (as in pools with the head axis before the token axis).
        """
        if not planes or not all(planes):
            raise ValueError("a pool has at least one plane of at least one layer")
        self.planes = tuple(_plane(list(tensors)) for tensors in planes)
        first = planes[0][0]
        self.layers = len(planes[0])
        self.slots = first.shape[0]
        self.dtype, self.device = first.dtype, first.device
        self._require_equal_planes()
        addresses = [tensor.data_ptr() for plane in self.planes for tensor in plane.tensors]
        self.addresses = torch.tensor(addresses, dtype=torch.int64, device=self.device)
        """int64 ``[planes * layers]`` on the pool's device."""
        # Like the addresses copied from the host, so that it is there for every stream once we return.
        self.rejected = torch.tensor([0], dtype=torch.int64, device=self.device)
        """Slots out of range that kernels have passed over since the pool was built, on its device: read
        it where you wait for the device anyway. Slots in host memory are checked before a launch."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Bytes of one token in one layer, one entry a plane."""
        return tuple(plane.row_bytes for plane in self.planes)

    def _require_equal_planes(self) -> None:
        for plane in self.planes:
            tensor = plane.tensors[0]
            facts = (len(plane.tensors), tensor.shape[0], tensor.dtype, tensor.device)
            if facts != (self.layers, self.slots, self.dtype, self.device):
                raise ValueError(
                    f"planes of one pool have equal layers, slots, dtype and device: {facts} is not "
                    f"{(self.layers, self.slots, self.dtype, self.device)}"
                )


def _plane(tensors: list[torch.Tensor]) -> Plane:
    first = tensors[0]
    for layer, tensor in enumerate(tensors):
        _require_alike(layer, tensor, first)
    if first.dim() not in (2, 3) or not first.numel():
        raise ValueError(
            f"a layer is [slots, heads, dim] or [slots, dim] and not empty, not {[*first.shape]}"
        )
    if not first[0].is_contiguous():
        raise ValueError(f"the elements of a slot must be dense, but strides are {first.stride()} (elements)")
    item = first.element_size()
    row, stride = prod(first.shape[1:]) * item, first.stride(0) * item
    if first.shape[0] > 1 and stride < row:
        raise ValueError(f"slots overlap: {stride} bytes apart, {row} bytes long")
    heads = first.shape[1] if first.dim() == 3 else 1
    alignment = gcd(_WIDEST, row, stride, *(tensor.data_ptr() for tensor in tensors))
    return Plane(tuple(tensors), heads, first.shape[-1], row, stride, alignment)


def _require_alike(layer: int, tensor: torch.Tensor, first: torch.Tensor) -> None:
    for fact in ("dtype", "device", "shape"):
        found, wanted = getattr(tensor, fact), getattr(first, fact)
        if found != wanted:
            raise ValueError(f"layer {layer} has {fact} {found}, layer 0 has {wanted}")
    if tensor.stride() != first.stride():
        raise ValueError(f"layer {layer} has strides {tensor.stride()}, layer 0 has {first.stride()}")
