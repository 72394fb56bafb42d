"""On a GPU the kernels equal the torch reference on the CPU: `pytest -m gpu tests/kernels`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from sgkv.triton_kernels.formats import Format, quantized_geometry
from sgkv.triton_kernels.packing import pack, unpack
from sgkv.triton_kernels.quantized import pack_quantized, unpack_quantized
from sgkv.triton_kernels.rotation import Rotation, rotate_keys
from tests.kernels.pools import Shape, contents, same
from tests.kernels.test_copying import SHAPES as COPIED
from tests.kernels.test_copying import shapes
from tests.kernels.test_quantizing import SHAPES as QUANTIZED
from tests.kernels.test_quantizing import between_codes
from tests.kernels.test_rotation import SHAPES as ROTATED

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu() -> str:
    """Skips, saying what is missing, where torch sees no GPU."""
    if not torch.cuda.is_available():
        pytest.skip(f"needs a GPU and a torch for it; torch {torch.__version__} sees none")
    return "cuda"


def require_equal_copies(shape: Shape, gpu: str, programs: int | None = None) -> None:
    """Pack and unpack, with slots in host memory and on the device."""
    call = {"page_size": shape.page_size, "layers": shape.picked}
    here, there = shape.pool(1), replace(shape, device=gpu).pool(1)
    slots = shape.some_slots(2)
    expected, packed = shape.chunk(here), shape.chunk(there)
    pack(here, slots, expected, **call)
    pack(there, slots, packed, programs=programs, **call)
    assert torch.equal(packed.cpu(), expected)
    target, filled = shape.pool(3), replace(shape, device=gpu).pool(3)
    unpack(target, slots, expected, **call)
    unpack(filled, slots.to(gpu), packed, programs=programs, **call)
    assert same(contents(filled), contents(target))
    assert not there.rejected.item()
    assert not filled.rejected.item()


@pytest.mark.parametrize("shape", COPIED.values(), ids=COPIED.keys())
@pytest.mark.parametrize("programs", [None, 8])
def test_copies(shape: Shape, programs: int | None, gpu: str) -> None:
    require_equal_copies(shape, gpu, programs)


@settings(max_examples=20)
@given(shape=shapes())
def test_copies_of_any_shape(shape: Shape, gpu: str) -> None:
    require_equal_copies(shape, gpu)


def test_slots_out_of_range_are_counted_and_fault_nothing(gpu: str) -> None:
    shape = Shape(device=gpu)
    pool = shape.pool(1)
    before, chunk = contents(pool), shape.chunk(pool)
    bad = torch.tensor([-1, shape.slots, 1 << 40, -(1 << 60)] * 3, device=gpu)
    pack(pool, bad, chunk, page_size=4)
    unpack(pool, bad, chunk, page_size=4)
    assert same(contents(pool), before)
    assert (chunk == 0xA5).all()
    assert pool.rejected.item() == 2 * len(bad)


@pytest.mark.parametrize("code", Format)
@pytest.mark.parametrize("shape", QUANTIZED.values(), ids=QUANTIZED.keys())
def test_quantizing(shape: Shape, code: Format, gpu: str) -> None:
    here, there = shape.pool(1), replace(shape, device=gpu).pool(1)
    slots = shape.some_slots(2)
    call = {"page_size": shape.page_size, "layers": shape.picked}
    size = quantized_geometry(here, shape.page_size).chunk_bytes(shape.tokens)
    expected, packed = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8, device=gpu)
    pack_quantized(here, slots, expected, code, **call)
    pack_quantized(there, slots, packed, code, **call)
    assert torch.equal(packed.cpu(), expected)
    unpack_quantized(here, slots, expected, code, **call)
    unpack_quantized(there, slots, packed, code, **call)
    assert same(contents(there), contents(here))


@pytest.mark.parametrize("code", Format)
def test_rounding_is_exact_at_every_boundary(code: Format, gpu: str) -> None:
    numbers = [code.levels, *between_codes(code)]
    numbers += [0.0] * (-len(numbers) % 4)
    shape = Shape(tokens=1, page_size=1, layers=1, heads=1, dims=(len(numbers),), dtype=torch.float32)
    here, there = shape.pool(1), replace(shape, device=gpu).pool(1)
    slots = torch.zeros(1, dtype=torch.int64)
    chunks = []
    for pool in (here, there):
        pool.planes[0].tensors[0][0, 0] = torch.tensor(numbers)
        size = quantized_geometry(pool, 1).page_bytes
        chunks.append(torch.zeros(size, dtype=torch.uint8, device=pool.device))
        pack_quantized(pool, slots, chunks[-1], code, page_size=1)
    assert torch.equal(chunks[1].cpu(), chunks[0])


@pytest.mark.parametrize("case", ROTATED.values(), ids=ROTATED.keys())
def test_rotating(case: tuple[Shape, int, int, bool], gpu: str) -> None:
    shape, pairs, first, interleaved = case
    frequencies = 10000.0 ** -(torch.arange(pairs) / pairs)
    rotation = Rotation.by(1234, frequencies, first=first, interleaved=interleaved)
    on_gpu = replace(rotation, cosines=rotation.cosines.to(gpu), sines=rotation.sines.to(gpu))
    here, there = shape.pool(1), replace(shape, device=gpu).pool(1)
    slots = shape.some_slots(2)
    rotate_keys(here, slots, rotation, layers=shape.picked)
    rotate_keys(there, slots, on_gpu, layers=shape.picked)
    assert same(contents(there), contents(here))
