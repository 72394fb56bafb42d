"""What is run in a process where Triton interprets its kernels: each function is one comparison.

Nothing here imports Triton when it is imported, so that `interpreter` can choose how Triton runs first.
"""

from __future__ import annotations

import os

import torch

from sgkv.triton_kernels import reference
from sgkv.triton_kernels.packing import chunk_geometry
from sgkv.triton_kernels.transfer import Transfer
from tests.kernels.pools import Shape, contents, same


def interpret() -> None:
    """Called once, before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"


def pack_equals_reference(shape: Shape, programs: int | None) -> None:
    """Same bytes in the chunk, the rows that are not named untouched."""
    from sgkv.triton_kernels import copying

    pool, slots = shape.pool(1), shape.some_slots(2)
    expected, packed = shape.chunk(pool), shape.chunk(pool)
    reference.pack(_transfer(shape, pool, slots, expected))
    copying.pack(_transfer(shape, pool, slots, packed), programs=programs)
    assert torch.equal(packed, expected)


def unpack_equals_reference(shape: Shape, programs: int | None) -> None:
    """Same bytes in the pool, other slots and layers untouched."""
    from sgkv.triton_kernels import copying

    expected, filled, slots = shape.pool(3), shape.pool(3), shape.some_slots(4)
    chunk = shape.chunk(expected)
    chunk.copy_(torch.randint(0, 256, chunk.shape, generator=torch.Generator().manual_seed(shape.seed)))
    reference.unpack(_transfer(shape, expected, slots, chunk))
    copying.unpack(_transfer(shape, filled, slots, chunk), programs=programs)
    assert same(contents(filled), contents(expected))


def bad_slots_are_counted(shape: Shape, bad: list[int]) -> None:
    """Slots that no host could look at are passed over, in both directions."""
    from sgkv.triton_kernels import copying

    pool, slots = shape.pool(1), shape.some_slots(2)
    chunk, before = shape.chunk(pool), contents(pool)
    geometry = chunk_geometry(pool, shape.page_size)
    wild = torch.tensor(bad * shape.tokens, dtype=torch.int64)[: shape.tokens]
    transfer = Transfer(pool, wild, chunk, geometry, range(shape.layers))
    copying.pack(transfer)
    copying.unpack(transfer)
    assert same(contents(pool), before)
    assert torch.equal(chunk, shape.chunk(pool))
    assert pool.rejected.item() == 2 * len(slots) * len(
        {(plane.heads, plane.dim, plane.stride_bytes) for plane in pool.planes}
    )


def _transfer(shape: Shape, pool, slots, chunk) -> Transfer:
    return Transfer.checked(pool, slots, chunk, chunk_geometry(pool, shape.page_size), shape.picked)
