"""Rows of KV memory as integer matrices, from tensors or from bare addresses.

Integers move bits unchanged and for every dtype alike (torch has no index kernels for fp8).
"""

from __future__ import annotations

import ctypes

import torch

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def rows_at(address: int, count: int, row_bytes: int) -> torch.Tensor:
    """`count` packed rows of `row_bytes` at `address`: shape (count, words), writable, not owned.

    The word is the widest integer that divides a row; pool buffers are aligned to it.
    """
    word = next(size for size in (8, 4, 2, 1) if row_bytes % size == 0)
    memory = (ctypes.c_uint8 * (count * row_bytes)).from_address(address)
    return torch.frombuffer(memory, dtype=_INTEGER[word]).view(count, row_bytes // word)


def rows_of(tensor: torch.Tensor, row_bytes: int) -> torch.Tensor:
    """A packed tensor as a matrix of rows of `row_bytes`, sharing its memory."""
    if not tensor.is_contiguous():
        raise ValueError(f"rows of {tuple(tensor.shape)} are not packed: strides {tensor.stride()}")
    return rows_at(tensor.data_ptr(), tensor.nbytes // row_bytes, row_bytes)


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape and strides, each element as the integer of its bits."""
    return tensor.view(_INTEGER[tensor.element_size()])


def rows_reached(address: int, indices: torch.Tensor, row_bytes: int) -> torch.Tensor:
    """The rows at `address` as far as `indices` go; a bare address does not say how many there are."""
    return rows_at(address, int(indices.max()) + 1, row_bytes)
