"""Pack and unpack in plain torch: what the kernels, and what runs on a CPU, must equal bit for bit."""

from __future__ import annotations

import torch

from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.transfer import Transfer


def pack(transfer: Transfer) -> None:
    """Pool rows into the chunk. Rows of the last page past the last token stay as they are."""
    page, token = positions(transfer)
    for at, plane in enumerate(transfer.pool.planes):
        for layer in transfer.layers:
            rows = plane.tensors[layer][transfer.slots]
            region(transfer.chunk, transfer.geometry, at, layer)[page, token] = as_bytes(rows)


def unpack(transfer: Transfer) -> None:
    """Chunk rows into the pool; no other slot of it changes."""
    page, token = positions(transfer)
    for at, plane in enumerate(transfer.pool.planes):
        for layer in transfer.layers:
            rows = region(transfer.chunk, transfer.geometry, at, layer)[page, token]
            tensor = plane.tensors[layer]
            tensor[transfer.slots] = rows.view(tensor.dtype).view(transfer.tokens, *tensor.shape[1:])


def positions(transfer: Transfer) -> tuple[torch.Tensor, torch.Tensor]:
    """Page of the chunk and place in that page of each token."""
    order = torch.arange(transfer.tokens, device=transfer.chunk.device)
    size = transfer.geometry.page_size
    return order // size, order % size


def region(chunk: torch.Tensor, geometry: ChunkGeometry, plane: int, layer: int) -> torch.Tensor:
    """A view of one plane and layer of every page: uint8 ``[page, token, row]``."""
    start = geometry.starts[plane] + layer * geometry.layer_bytes[plane]
    pages = chunk.view(-1, geometry.page_bytes)[:, start : start + geometry.layer_bytes[plane]]
    return pages.unflatten(1, (geometry.page_size, geometry.rows[plane]))


def as_bytes(rows: torch.Tensor) -> torch.Tensor:
    """uint8 ``[token, bytes of a row]`` of dense rows."""
    return rows.flatten(1).view(torch.uint8)
