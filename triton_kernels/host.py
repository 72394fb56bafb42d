"""Pack and unpack on a CPU, by numpy: equal to the torch reference, twenty times as fast.

Numpy copies whole rows, in the calling thread alone and without Python's lock. Torch goes element by
element, and shares that among threads which wait for each other where cores are busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

from sgkv.triton_kernels.reference import region
from sgkv.triton_kernels.transfer import Transfer

if TYPE_CHECKING:
    import numpy as np


class _Rows(NamedTuple):
    """Some tokens of one plane and layer."""

    pool: np.ndarray
    """uint8 ``[slots, row]``."""
    slots: np.ndarray
    """int64 ``[page, token]``, or ``[token]`` of a last page that is not full."""
    chunk: np.ndarray
    """uint8 of the shape of `slots` and a row."""


def pack(transfer: Transfer) -> None:
    """As `reference.pack`."""
    for rows in _rows(transfer):
        rows.chunk[...] = rows.pool[rows.slots]


def unpack(transfer: Transfer) -> None:
    """As `reference.unpack`."""
    for rows in _rows(transfer):
        rows.pool[rows.slots] = rows.chunk


def _rows(transfer: Transfer) -> Iterator[_Rows]:
    size, slots = transfer.geometry.page_size, transfer.slots.numpy()
    pages, rest = divmod(transfer.tokens, size)
    whole, last = slots[: pages * size].reshape(pages, size), slots[pages * size :]
    for at, plane in enumerate(transfer.pool.planes):
        for layer in transfer.layers:
            pool = plane.tensors[layer].flatten(1).view(torch.uint8).numpy()
            chunk = region(transfer.chunk, transfer.geometry, at, layer).numpy()
            if pages:
                yield _Rows(pool, whole, chunk[:pages])
            if rest:
                yield _Rows(pool, last, chunk[pages, :rest])
