"""8-bit rows: how exact they are, what is refused, and that the kernels equal the reference bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.chunk.convert import convert_page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.triton_kernels.formats import SMALLEST, Format, decode, encode, quantized_geometry
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.quantized import pack_quantized, unpack_quantized
from tests.kernels.conftest import Interpreted
from tests.kernels.interpreted import quantizing_equals_reference, quantizing_numbers_equals_reference
from tests.kernels.pools import Shape, contents, same

EITHER = pytest.mark.parametrize("code", Format)
SHAPE = Shape(tokens=10, page_size=4, layers=2, heads=3, dims=(16, 8))
SHAPES = {
    "llama 8B": Shape(tokens=40, page_size=64, layers=2, heads=8, dims=(128, 128)),
    "llama 70B, one rank of 8": Shape(tokens=70, page_size=64, layers=2, heads=1, dims=(128, 128)),
    "deepseek mla": Shape(tokens=9, page_size=4, layers=2, heads=1, dims=(576,)),
    "K wider than V, half precision": Shape(tokens=9, heads=2, dims=(192, 128), dtype=torch.float16),
    "one layer, strided": Shape(tokens=9, layers=3, gap=16, first_layer=1, last_layer=2),
    "no token": Shape(tokens=0),
}
MAGNITUDES = st.sampled_from([0.0, 1e-38, 1e-30, 1e-3, 1.0, 300.0, 1e30])


@EITHER
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_shapes_of_models(interpreted: Interpreted, shape: Shape, code: Format) -> None:
    interpreted(quantizing_equals_reference, shape, code, None, 3.0)


SMALL_SHAPES = st.builds(
    Shape,
    tokens=st.integers(0, 40),
    page_size=st.integers(1, 64),
    layers=st.integers(1, 2),
    heads=st.integers(1, 3),
    dims=st.sampled_from([(4,), (20,), (8, 8), (24, 16), (12, 64)]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    gap=st.integers(0, 3),
    seed=st.integers(0, 9),
)


@EITHER
@settings(max_examples=25)
@given(shape=SMALL_SHAPES, programs=st.sampled_from([None, 1, 3]), magnitude=MAGNITUDES)
def test_any_shape_grid_and_magnitude(
    interpreted: Interpreted, shape: Shape, code: Format, programs: int | None, magnitude: float
) -> None:
    interpreted(quantizing_equals_reference, shape, code, programs, magnitude)


def between_codes(code: Format) -> list[float]:
    """Each number that has a code, those halfway between two, and the floats next to these."""
    kind = torch.int8 if code is Format.INT8 else torch.float8_e4m3fn
    codes = torch.arange(256, dtype=torch.uint8).view(kind).to(torch.float64)
    exact = codes[codes.abs() <= code.levels].unique()
    halves = ((exact[1:] + exact[:-1]) / 2).to(torch.float32)
    beside = [torch.nextafter(halves, torch.full_like(halves, way)) for way in (-1000.0, 1000.0)]
    return torch.cat([exact.to(torch.float32), halves, *beside]).tolist()


@EITHER
def test_rounding_is_exact_at_every_boundary(interpreted: Interpreted, code: Format) -> None:
    """Scales are 1 here, since the largest number is the largest code: each quotient is the number."""
    numbers = between_codes(code)
    for start in range(0, len(numbers), 124):
        head = [code.levels, *numbers[start : start + 124]]
        interpreted(quantizing_numbers_equals_reference, head + [0.0] * (-len(head) % 4), code)


@EITHER
@given(numbers=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20))
def test_what_comes_back_is_near(code: Format, numbers: list[float]) -> None:
    """int8: half a step of the head's scale. fp8: half of the last of three bits, or of the smallest step."""
    exact = torch.tensor(numbers, dtype=torch.float32)
    codes, scale = encode(exact, code)
    step = torch.ones_like(exact) if code is Format.INT8 else (exact / scale).abs().clamp(min=2**-6) / 8
    error = (decode(codes, scale, code).double() - exact.double()).abs()
    assert (error <= step.double() * scale.double() * 0.5001).all()


@EITHER
def test_zeros_stay_zeros(code: Format) -> None:
    codes, scale = encode(torch.zeros(2, 8), code)
    assert not codes.any()
    assert (scale == torch.tensor(SMALLEST) / code.levels).all()


@EITHER
def test_a_chunk_has_codes_then_scales_in_the_order_of_the_store(code: Format) -> None:
    """The page converts to token order like any other, and each head is found with its scale."""
    pool, slots = SHAPE.pool(1), SHAPE.some_slots(2)[:4].contiguous()
    chunk = torch.zeros(quantized_geometry(pool, 4).page_bytes, dtype=torch.uint8)
    pack_quantized(pool, slots, chunk, code, page_size=4)
    stored = PageLayout(Order.LAYER, code.value, tokens=4, layers=2, heads=3, rows=(16, 8, 4, 4))
    wanted = PageLayout(Order.TOKEN, code.value, tokens=4, layers=2, heads=3, rows=(16, 8, 4, 4))
    page = torch.frombuffer(
        bytearray(convert_page(memoryview(chunk.numpy().tobytes()), stored, wanted)), dtype=torch.uint8
    )
    keys, values, key_scales, _ = page.split(wanted.plane_bytes)
    codes, scales = encode(pool.planes[0].tensors[1][slots[2], 1].float(), code)
    at = (2 * 2 + 1) * 3 + 1  # token 2, layer 1, head 1
    assert torch.equal(keys.view(-1, 16)[at], codes)
    assert key_scales.view(torch.float32)[at] == scales
    codes, _ = encode(pool.planes[1].tensors[0][slots[3], 2].float(), code)
    assert torch.equal(values.view(-1, 8)[3 * 2 * 3 + 2], codes)


@EITHER
def test_packing_what_was_unpacked_changes_nothing_more(code: Format) -> None:
    pool, slots = SHAPE.pool(1), SHAPE.some_slots(2)
    chunk = torch.zeros(quantized_geometry(pool, 4).chunk_bytes(10), dtype=torch.uint8)
    pack_quantized(pool, slots, chunk, code, page_size=4)
    unpack_quantized(pool, slots, chunk, code, page_size=4)
    before = contents(pool)
    pack_quantized(pool, slots, chunk, code, page_size=4)
    unpack_quantized(pool, slots, chunk, code, page_size=4)
    assert same(contents(pool), before)


@pytest.mark.parametrize("move", [pack_quantized, unpack_quantized])
def test_what_cannot_be_quantized_is_refused(move) -> None:
    slots, chunk = torch.zeros(1, dtype=torch.int64), torch.zeros(4096, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"can be quantized, not of torch\.uint8"):
        move(PagedPool([torch.zeros(4, 8, dtype=torch.uint8)]), slots, chunk, Format.INT8, page_size=4)
    with pytest.raises(ValueError, match="head dim that 4 does not divide"):
        move(PagedPool([torch.zeros(4, 6)]), slots, chunk, Format.INT8, page_size=4)
    with pytest.raises(ValueError, match="begins at a multiple of 4 bytes"):
        move(PagedPool([torch.zeros(4, 8)]), slots, chunk[1:], Format.INT8, page_size=4)
    with pytest.raises(ValueError, match="slots 4 to 4 do not lie in a pool of 4"):
        move(PagedPool([torch.zeros(4, 8)]), slots + 4, chunk, Format.INT8, page_size=4)
