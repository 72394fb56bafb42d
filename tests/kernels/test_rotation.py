"""Turning keys to other positions: what the model would have computed there, and kernels equal torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.rotation import Rotation, rotate_keys
from tests.kernels.conftest import Interpreted
from tests.kernels.interpreted import rotating_equals_reference
from tests.kernels.pools import Shape, contents, same

SHAPE = Shape(tokens=10, layers=3, heads=2, dims=(32, 8))
SHAPES = {
    "llama 8B": (Shape(tokens=20, layers=2, heads=8, dims=(128, 128)), 64, 0, False),
    "deepseek mla": (Shape(tokens=20, layers=2, heads=1, dims=(576,)), 32, 512, True),
    "part of a head": (Shape(tokens=20, heads=3, dims=(80, 80), dtype=torch.float16), 16, 0, False),
    "strided, one layer": (Shape(tokens=9, layers=3, gap=6, first_layer=1, last_layer=2), 8, 0, True),
    "no token": (Shape(tokens=0), 8, 0, False),
}


def frequencies(pairs: int) -> torch.Tensor:
    return 10000.0 ** -(torch.arange(pairs, dtype=torch.float64) / pairs)


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES.keys())
def test_shapes_of_models(interpreted: Interpreted, case: tuple[Shape, int, int, bool]) -> None:
    interpreted(rotating_equals_reference, *case, None)


@settings(max_examples=25)
@given(
    shape=st.builds(
        Shape,
        tokens=st.integers(0, 40),
        layers=st.integers(1, 2),
        heads=st.integers(1, 3),
        dims=st.sampled_from([(48,), (50, 24)]),
        dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
        gap=st.integers(0, 3),
    ),
    pairs=st.integers(1, 20),
    first=st.integers(0, 8),
    interleaved=st.booleans(),
    programs=st.sampled_from([None, 1, 3]),
)
def test_any_shape_and_grid(interpreted: Interpreted, shape, pairs, first, interleaved, programs) -> None:
    interpreted(rotating_equals_reference, shape, pairs, first, interleaved, programs)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offset", [1, 777, -300])
def test_it_is_what_sglang_computes_at_the_other_position(interleaved: bool, offset: int) -> None:
    from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

    rope = RotaryEmbedding(64, 64, 4096, 10000, not interleaved, torch.float32)
    keys, places = torch.randn(12, 2 * 64, generator=torch.Generator().manual_seed(0)), torch.arange(400, 412)

    def at(positions: torch.Tensor) -> torch.Tensor:
        return rope.forward_native(positions, keys.clone(), keys.clone())[1]

    pool = PagedPool([at(places).view(12, 2, 64).clone()])
    rotate_keys(pool, torch.arange(12), Rotation.by(offset, frequencies(32), interleaved=interleaved))
    torch.testing.assert_close(pool.planes[0].tensors[0].view(12, -1), at(places + offset), atol=2e-3, rtol=0)


def test_forth_and_back_is_where_it_was() -> None:
    shape = replace(SHAPE, dtype=torch.float32)
    pool, slots = shape.pool(1), shape.some_slots(2)
    before = [tensor.clone() for tensor in pool.planes[0].tensors]
    rotate_keys(pool, slots, Rotation.by(100, frequencies(16)))
    assert not torch.allclose(pool.planes[0].tensors[0], before[0], atol=1e-2)
    rotate_keys(pool, slots, Rotation.by(-100, frequencies(16)))
    for now, then in zip(pool.planes[0].tensors, before, strict=True):
        torch.testing.assert_close(now, then, atol=1e-5, rtol=0)


def test_nothing_else_moves() -> None:
    """Other slots, other layers, the values, and the elements of a head that carry no position."""
    pool, slots, before = SHAPE.pool(1), SHAPE.some_slots(2), SHAPE.pool(1)
    rotate_keys(pool, slots, Rotation.by(5, frequencies(4), first=8), layers=range(1, 2))
    others = torch.ones(SHAPE.slots, dtype=torch.bool).index_fill(0, slots, value=False)
    keys, were = pool.planes[0].tensors, before.planes[0].tensors
    assert torch.equal(keys[0], were[0])
    assert torch.equal(keys[2], were[2])
    assert torch.equal(keys[1][others], were[1][others])
    assert torch.equal(keys[1][..., :8], were[1][..., :8])
    assert torch.equal(keys[1][..., 16:], were[1][..., 16:])
    assert not torch.equal(keys[1][slots][..., 8:16], were[1][slots][..., 8:16])
    assert same(contents(pool)[3:], contents(before)[3:])


def test_what_cannot_be_turned_is_refused() -> None:
    pool, slots, rotation = SHAPE.pool(1), SHAPE.some_slots(2), Rotation.by(1, frequencies(16))
    bytes_pool = replace(SHAPE, dtype=torch.uint8).pool(1)
    for message, call in {
        "not in a head of 32": lambda: rotate_keys(pool, slots, replace(rotation, first=1)),
        "0 pairs": lambda: rotate_keys(pool, slots, Rotation.by(1, frequencies(0))),
        "float32, one a pair": lambda: rotate_keys(pool, slots, replace(rotation, sines=rotation.sines[1:])),
        r"not torch\.float64": lambda: rotate_keys(
            pool, slots, replace(rotation, cosines=rotation.cosines.double())
        ),
        "the rotation lies on meta": lambda: rotate_keys(
            pool, slots, replace(rotation, cosines=rotation.cosines.to("meta"))
        ),
        "slots .* do not lie in a pool": lambda: rotate_keys(pool, slots + 100, rotation),
        "not a run of the pool's 3 layers": lambda: rotate_keys(pool, slots, rotation, layers=range(9)),
        r"not of torch\.uint8": lambda: rotate_keys(bytes_pool, slots, rotation),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
