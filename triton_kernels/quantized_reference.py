"""Quantizing pack and dequantizing unpack in plain torch: what the kernels must equal bit for bit."""

from __future__ import annotations

import torch

from sgkv.triton_kernels.formats import Format, decode, encode
from sgkv.triton_kernels.reference import as_bytes, positions, region
from sgkv.triton_kernels.transfer import Transfer


def pack(transfer: Transfer, code: Format) -> None:
    """Pool rows into the chunk, as codes and scales."""
    if not transfer.tokens:
        return
    page, token = positions(transfer)
    for at, plane in enumerate(transfer.pool.planes):
        for layer in transfer.layers:
            numbers = plane.tensors[layer][transfer.slots].view(-1, plane.heads, plane.dim)
            codes, scales = encode(numbers.to(torch.float32), code)
            code_rows, scale_rows = _regions(transfer, at, layer)
            code_rows[page, token] = as_bytes(codes)
            scale_rows[page, token] = as_bytes(scales)


def unpack(transfer: Transfer, code: Format) -> None:
    """Codes and scales of the chunk into the pool, rounded to its dtype."""
    page, token = positions(transfer)
    for at, plane in enumerate(transfer.pool.planes):
        for layer in transfer.layers:
            code_rows, scale_rows = _regions(transfer, at, layer)
            codes = code_rows[page, token].view(-1, plane.heads, plane.dim)
            scales = scale_rows[page, token].view(torch.float32)
            tensor = plane.tensors[layer]
            numbers = decode(codes, scales, code).to(tensor.dtype)
            tensor[transfer.slots] = numbers.view(transfer.tokens, *tensor.shape[1:])


def _regions(transfer: Transfer, plane: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of one plane and layer."""
    scales = len(transfer.pool.planes) + plane
    return (
        region(transfer.chunk, transfer.geometry, plane, layer),
        region(transfer.chunk, transfer.geometry, scales, layer),
    )
