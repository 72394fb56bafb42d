"""The copy kernels under Triton's interpreter equal the torch reference bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.conftest import Interpreted
from tests.kernels.interpreted import bad_slots_are_counted, pack_equals_reference, unpack_equals_reference
from tests.kernels.pools import Shape

BOTH = pytest.mark.parametrize("comparison", [pack_equals_reference, unpack_equals_reference])
SHAPES = {
    "llama 8B, a page a chunk": Shape(tokens=256, page_size=256, layers=2, heads=8, dims=(128, 128)),
    "llama 70B, one rank of 8": Shape(tokens=200, page_size=64, layers=3, heads=1, dims=(128, 128)),
    "deepseek mla": Shape(tokens=130, page_size=64, layers=2, heads=1, dims=(576,)),
    "K wider than V": Shape(tokens=33, page_size=16, heads=4, dims=(192, 128)),
    "strided rows": Shape(tokens=40, page_size=8, heads=2, dims=(64, 64), gap=96),
    "a token a page": Shape(tokens=65, page_size=1, heads=2, dims=(64, 64)),
    "odd pages": Shape(tokens=50, page_size=7, heads=2, dims=(40, 40), dtype=torch.float16),
    "rows of 3 bytes": Shape(tokens=20, page_size=4, heads=1, dims=(3, 3), dtype=torch.uint8),
    "a row that no power of two divides": Shape(tokens=9, page_size=4, heads=1, dims=(1042,)),
    "one layer of many": Shape(tokens=20, layers=5, first_layer=3, last_layer=4),
    "one token": Shape(tokens=1, page_size=64),
    "no token": Shape(tokens=0),
}


@BOTH
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_shapes_of_models(interpreted: Interpreted, comparison: Interpreted, shape: Shape) -> None:
    interpreted(comparison, shape, None)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    page_size = draw(st.one_of(st.sampled_from([1, 16, 64, 256]), st.integers(1, 256)))
    layers = draw(st.integers(1, 3))
    first = draw(st.integers(0, layers - 1))
    dim = st.integers(1, 72)
    return Shape(
        tokens=draw(st.integers(0, 300)),
        page_size=page_size,
        layers=layers,
        heads=draw(st.integers(1, 3)),
        dims=draw(st.one_of(st.tuples(dim), dim.map(lambda one: (one, one)), st.tuples(dim, dim))),
        dtype=draw(st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.uint8])),
        gap=draw(st.integers(0, 9)),
        first_layer=first,
        last_layer=draw(st.integers(first + 1, layers)),
        seed=draw(st.integers(0, 9)),
    )


@BOTH
@settings(max_examples=30)
@given(shape=shapes(), programs=st.sampled_from([None, 1, 3, 8]))
def test_any_shape_and_grid(
    interpreted: Interpreted, comparison: Interpreted, shape: Shape, programs: int | None
) -> None:
    interpreted(comparison, shape, programs)


@pytest.mark.parametrize("bad", [[-1], [19], [1 << 40], [-(1 << 60), 1 << 62]])
def test_slots_that_only_the_device_sees_fault_nothing(interpreted: Interpreted, bad: list[int]) -> None:
    interpreted(bad_slots_are_counted, Shape(), bad)
