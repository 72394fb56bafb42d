"""What is run in a process where Triton interprets its kernels: each function is one comparison.

Nothing here imports Triton when it is imported, so that `interpreter` can choose how Triton runs first.
"""

from __future__ import annotations

import os

import torch

from sgkv.triton_kernels import quantized_reference, reference, rotation_reference
from sgkv.triton_kernels.formats import Format, quantized_geometry
from sgkv.triton_kernels.packing import chunk_geometry
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.rotation import Rotation, Turn
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
    assert pool.rejected.item() == 2 * len(slots) * len({plane.shape for plane in pool.planes})


def _transfer(shape: Shape, pool, slots, chunk) -> Transfer:
    return Transfer.checked(pool, slots, chunk, chunk_geometry(pool, shape.page_size), shape.picked)


def quantizing_equals_reference(shape: Shape, code: Format, programs: int | None, magnitude: float) -> None:
    """Same codes and scales in the chunk, and from them the same numbers in a pool."""
    from sgkv.triton_kernels import quantizing

    pool, slots = shape.pool(1, magnitude), shape.some_slots(2)
    geometry = quantized_geometry(pool, shape.page_size)
    expected = torch.full((geometry.chunk_bytes(shape.tokens),), 0xA5, dtype=torch.uint8)
    packed = expected.clone()
    quantized_reference.pack(Transfer.checked(pool, slots, expected, geometry, shape.picked), code)
    quantizing.pack(Transfer.checked(pool, slots, packed, geometry, shape.picked), code, programs=programs)
    assert torch.equal(packed, expected)
    filled, wanted = shape.pool(3), shape.pool(3)
    quantized_reference.unpack(Transfer.checked(wanted, slots, packed, geometry, shape.picked), code)
    quantizing.unpack(
        Transfer.checked(filled, slots, packed, geometry, shape.picked), code, programs=programs
    )
    assert same(contents(filled), contents(wanted))


def quantizing_numbers_equals_reference(numbers: list[float], code: Format) -> None:
    """The same for chosen numbers, as the elements of one head."""
    from sgkv.triton_kernels import quantizing

    pool = PagedPool([torch.tensor([numbers], dtype=torch.float32)])
    slots, geometry = torch.zeros(1, dtype=torch.int64), quantized_geometry(pool, 1)
    expected, packed = torch.zeros(2, geometry.page_bytes, dtype=torch.uint8)
    quantized_reference.pack(Transfer.checked(pool, slots, expected, geometry, None), code)
    quantizing.pack(Transfer.checked(pool, slots, packed, geometry, None), code)
    assert packed.tolist() == expected.tolist()
    decoded = PagedPool([torch.zeros(1, len(numbers))])
    quantizing.unpack(Transfer.checked(decoded, slots, packed, geometry, None), code)
    quantized_reference.unpack(Transfer.checked(pool, slots, packed, geometry, None), code)
    assert same(contents(decoded), contents(pool))


def rotating_equals_reference(
    shape: Shape, pairs: int, first: int, interleaved: bool, programs: int | None
) -> None:
    """Same keys, every other byte of the pool untouched."""
    from sgkv.triton_kernels import rotating

    turned, expected, slots = shape.pool(1), shape.pool(1), shape.some_slots(2)
    frequencies = 10000.0 ** -(torch.arange(pairs) / pairs)
    rotation = Rotation.by(1234, frequencies, first=first, interleaved=interleaved)
    rotation_reference.rotate(Turn(expected, slots, rotation, shape.picked))
    rotating.rotate(Turn(turned, slots, rotation, shape.picked), programs=programs)
    assert same(contents(turned), contents(expected))
