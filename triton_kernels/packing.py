"""Pages of a paged pool into one contiguous chunk, and back."""

from __future__ import annotations

import torch

from sgkv.triton_kernels import host
from sgkv.triton_kernels.geometry import ChunkGeometry
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.transfer import Transfer


def pack(
    pool: PagedPool,
    slots: torch.Tensor,
    chunk: torch.Tensor,
    *,
    page_size: int,
    layers: range | None = None,
    programs: int | None = None,
) -> None:
    """Copy the tokens at `slots` into `chunk`, in the order ``[page][K|V][layer][token][row]``.

    `slots` is int64 ``[tokens]`` in host memory or on the pool's device, one slot a token; `chunk` is a
    dense row of uint8 on the pool's device, large enough for whole pages (`chunk_geometry` has the sizes).
    Where the tokens do not fill the last page its other rows stay as they are. With `layers` only those
    layers of the chunk are written. `programs` bounds the GPU's share of the work.

    Asynchronous on the device's current stream: nothing here waits for a GPU, so slots in pinned memory stay
    as they are until the stream has passed. Raises ValueError for
    arguments that do not fit; see `Transfer.checked` for slots that lie on a GPU.
    """
    transfer = Transfer.checked(pool, slots, chunk, chunk_geometry(pool, page_size), layers)
    if pool.device.type == "cpu":
        host.pack(transfer)
    else:
        from sgkv.triton_kernels import copying

        copying.pack(transfer, programs=programs)


def unpack(
    pool: PagedPool,
    slots: torch.Tensor,
    chunk: torch.Tensor,
    *,
    page_size: int,
    layers: range | None = None,
    programs: int | None = None,
) -> None:
    """The reverse of `pack`, with the same arguments: fill `slots` of the pool from `chunk`.

    No slot may occur twice. With `layers` only those layers are read and written, so that a model can
    begin while later layers are still on their way into the chunk.
    """
    transfer = Transfer.checked(pool, slots, chunk, chunk_geometry(pool, page_size), layers)
    if pool.device.type == "cpu":
        host.unpack(transfer)
    else:
        from sgkv.triton_kernels import copying

        copying.unpack(transfer, programs=programs)


def chunk_geometry(pool: PagedPool, page_size: int) -> ChunkGeometry:
    """Sizes and offsets of chunks of this pool."""
    return ChunkGeometry(page_size, pool.layers, pool.rows)
