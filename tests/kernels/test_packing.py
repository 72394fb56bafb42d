"""`pack` and `unpack` on a CPU: the order of bytes, what stays untouched, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgkv.chunk.convert import convert_page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.triton_kernels import reference
from sgkv.triton_kernels.packing import chunk_geometry, pack, unpack
from sgkv.triton_kernels.pool import PagedPool
from sgkv.triton_kernels.transfer import Transfer
from tests.kernels.pools import Shape, contents, same

SHAPE = Shape(tokens=10, page_size=4, layers=3, heads=2, dims=(16, 8))


def test_a_page_is_what_the_store_calls_layer_order() -> None:
    """Converted from token order, which is put together here by hand."""
    shape = replace(SHAPE, tokens=4)
    pool, slots = shape.pool(1), shape.some_slots(2)
    chunk = shape.chunk(pool)
    pack(pool, slots, chunk, page_size=4)
    by_token = b"".join(
        tensor[slot].contiguous().view(torch.uint8).numpy().tobytes()
        for plane in pool.planes
        for slot in slots
        for tensor in plane.tensors
    )
    stored = PageLayout(Order.TOKEN, "bfloat16", tokens=4, layers=3, heads=2, rows=(32, 16))
    wanted = replace(stored, order=Order.LAYER)
    assert chunk.numpy().tobytes() == convert_page(memoryview(by_token), stored, wanted)


SHAPES = st.builds(
    Shape,
    tokens=st.integers(0, 70),
    page_size=st.integers(1, 256),
    layers=st.integers(1, 4),
    heads=st.integers(1, 3),
    dims=st.sampled_from([(8,), (8, 8), (24, 16), (3, 5)]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.uint8]),
    gap=st.integers(0, 5),
)


@given(SHAPES)
def test_it_equals_the_reference(shape: Shape) -> None:
    pool, slots = shape.pool(1), shape.some_slots(2)
    chunk, wanted = shape.chunk(pool, fill=7), shape.chunk(pool, fill=7)
    geometry = chunk_geometry(pool, shape.page_size)
    pack(pool, slots, chunk, page_size=shape.page_size)
    reference.pack(Transfer.checked(pool, slots, wanted, geometry, None))
    assert torch.equal(chunk, wanted)
    target, expected, here = shape.pool(3), shape.pool(3), shape.some_slots(4)
    unpack(target, here, chunk, page_size=shape.page_size)
    reference.unpack(Transfer.checked(expected, here, chunk, geometry, None))
    assert same(contents(target), contents(expected))


@given(SHAPES)
def test_what_was_packed_comes_back_elsewhere(shape: Shape) -> None:
    source, target = shape.pool(1), shape.pool(2)
    there, here = shape.some_slots(3), shape.some_slots(4)
    chunk, before = shape.chunk(source), contents(target)
    pack(source, there, chunk, page_size=shape.page_size)
    unpack(target, here, chunk, page_size=shape.page_size)
    others = torch.ones(shape.slots, dtype=torch.bool).index_fill(0, here, value=False)
    for now, then, origin in zip(contents(target), before, contents(source), strict=True):
        assert torch.equal(now[here], origin[there])
        assert torch.equal(now[others], then[others])


def test_rows_of_the_last_page_past_the_last_token_stay() -> None:
    pool, slots = SHAPE.pool(1), SHAPE.some_slots(2)
    chunk = SHAPE.chunk(pool, fill=7)
    pack(pool, slots, chunk, page_size=4)
    geometry = chunk_geometry(pool, 4)
    last = chunk.view(-1, geometry.page_bytes)[2]
    first_layer = last[: geometry.layer_bytes[0]].view(4, geometry.rows[0])
    assert (first_layer[2:] == 7).all()
    assert not (first_layer[:2] == 7).all()


def test_layers_can_be_moved_one_by_one() -> None:
    pool, slots = SHAPE.pool(1), SHAPE.some_slots(2)
    whole, parts = SHAPE.chunk(pool), SHAPE.chunk(pool)
    pack(pool, slots, whole, page_size=4)
    for layer in range(3):
        pack(pool, slots, parts, page_size=4, layers=range(layer, layer + 1))
    assert torch.equal(parts, whole)
    target, expected = SHAPE.pool(5), SHAPE.pool(5)
    unpack(expected, slots, whole, page_size=4)
    unpack(target, slots, whole, page_size=4, layers=range(2))
    assert not same(contents(target), contents(expected))
    unpack(target, slots, whole, page_size=4, layers=range(2, 3))
    assert same(contents(target), contents(expected))


def test_a_larger_chunk_is_used_from_its_start() -> None:
    pool, slots = SHAPE.pool(1), SHAPE.some_slots(2)
    fitting = SHAPE.chunk(pool)
    roomy = torch.full((fitting.numel() + 100,), 0xA5, dtype=torch.uint8)
    pack(pool, slots, fitting, page_size=4)
    pack(pool, slots, roomy, page_size=4)
    assert torch.equal(roomy[: fitting.numel()], fitting)
    assert (roomy[fitting.numel() :] == 0xA5).all()


Change = Callable[[dict[str, object]], dict[str, object]]
REFUSED: dict[str, tuple[Change, str]] = {
    "slot past the pool": (lambda call: {"slots": call["slots"] + 10}, "slots .* do not lie in a pool of 17"),
    "negative slot": (lambda call: {"slots": call["slots"] - 17}, "slots -17 to"),
    "int32 slots": (lambda call: {"slots": call["slots"].int()}, "int64, not torch.int32"),
    "two rows of slots": (lambda call: {"slots": call["slots"].view(2, 5)}, r"shape \[2, 5\]"),
    "every other slot": (lambda call: {"slots": call["slots"][::2]}, r"strides \(2,\)"),
    "slots elsewhere": (
        lambda call: {"slots": call["slots"].to("meta")},
        "slots lie on meta, the pool on cpu",
    ),
    "short chunk": (lambda call: {"chunk": call["chunk"][1:]}, "10 tokens take 3 pages of 1152 bytes, 3456"),
    "chunk of floats": (
        lambda call: {"chunk": call["chunk"].view(torch.float32)},
        "uint8, not torch.float32",
    ),
    "chunk with gaps": (lambda call: {"chunk": call["chunk"].repeat(2)[::2]}, r"strides \(2,\)"),
    "chunk elsewhere": (lambda call: {"chunk": call["chunk"].to("meta")}, "the chunk lies on meta"),
    "no layers": (lambda call: {"layers": range(1, 1)}, "not a run of the pool's 3 layers"),
    "too many layers": (lambda call: {"layers": range(4)}, "not a run of the pool's 3 layers"),
    "every other layer": (lambda call: {"layers": range(0, 3, 2)}, "not a run"),
    "negative layers": (lambda call: {"layers": range(-1, 2)}, "not a run"),
    "page of nothing": (lambda call: {"page_size": 0}, "1 to 16384 tokens, not 0"),
    "page beyond a chunk": (lambda call: {"page_size": 16385}, "1 to 16384 tokens, not 16385"),
}


@pytest.mark.parametrize("move", [pack, unpack])
@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_call_that_does_not_fit_is_refused(move: Callable[..., None], change: Change, message: str) -> None:
    pool = SHAPE.pool(1)
    chunk, before = SHAPE.chunk(pool), contents(pool)
    call = {"slots": SHAPE.some_slots(2), "chunk": chunk, "page_size": 4}
    with pytest.raises(ValueError, match=message):
        move(pool, **call | change(call))
    assert same(contents(pool), before)
    assert (chunk == 0xA5).all()


def layer(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


BAD_POOLS: dict[str, tuple[list[list[torch.Tensor]], str]] = {
    "nothing": ([], "at least one plane"),
    "no layers": ([[], []], "at least one plane of at least one layer"),
    "layers of two dtypes": ([[layer(8, 2, 4), layer(8, 2, 4, dtype=torch.float32)]], "layer 1 has dtype"),
    "layers of two shapes": ([[layer(8, 2, 4), layer(8, 2, 8)]], "layer 1 has shape"),
    "layers of two strides": ([[layer(8, 2, 4), layer(8, 2, 8)[:, :, :4]]], "layer 1 has strides"),
    "layers on two devices": ([[layer(8, 2, 4), layer(8, 2, 4).to("meta")]], "layer 1 has device meta"),
    "more keys than values": ([[layer(8, 2, 4)] * 2, [layer(8, 2, 4)]], "equal layers, slots"),
    "keys and values of two dtypes": ([[layer(8, 4)], [layer(8, 4, dtype=torch.float32)]], "equal layers"),
    "keys and values of two sizes": ([[layer(8, 4)], [layer(9, 4)]], "equal layers, slots"),
    "heads before tokens": ([[layer(8, 4, 16, 4)]], r"\[slots, heads, dim\]"),
    "slots with gaps inside": ([[layer(8, 2, 8)[:, :, :4]]], "elements of a slot must be dense"),
    "slots that overlap": ([[layer(64).as_strided((8, 8), (4, 1))]], "slots overlap: 8 bytes apart, 16"),
    "empty": ([[layer(0, 4)]], "not empty"),
}


@pytest.mark.parametrize(("planes", "message"), BAD_POOLS.values(), ids=BAD_POOLS.keys())
def test_a_pool_that_cannot_be_addressed_is_refused(planes: list[list[torch.Tensor]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PagedPool(*planes)
