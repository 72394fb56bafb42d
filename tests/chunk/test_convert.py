"""Byte orders: every conversion is the permutation its name says, and is its own way back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.chunk.convert import convert_in_place, convert_page
from sgkv.chunk.layout import Order, PageLayout

ORDERS = [Order.LAYER, Order.TOKEN, Order.HEAD]
small = st.integers(1, 4)


def layout(order, tokens=3, layers=2, heads=2, rows=(4, 2), dtype="float32"):
    return PageLayout(order, dtype, tokens, layers, heads, rows)


def labelled(where: PageLayout) -> bytes:
    """A page whose rows spell (plane, layer, token, head), in the order of `where`."""
    planes = []
    for plane, row in enumerate(where.rows):
        sizes = {"layer": where.layers, "token": where.tokens, "head": where.heads}
        names = {
            Order.LAYER: ("layer", "token", "head"),
            Order.TOKEN: ("token", "layer", "head"),
            Order.HEAD: ("head", "token", "layer"),
        }[where.order]
        for index in np.ndindex(*(sizes[name] for name in names)):
            at = dict(zip(names, index, strict=True))
            label = plane * 1000 + at["layer"] * 100 + at["token"] * 10 + at["head"]
            planes.append(label.to_bytes(2, "little") * (row // 2))
    return b"".join(planes)


@given(st.sampled_from(ORDERS), st.sampled_from(ORDERS), small, small, small)
def test_rows_keep_their_meaning(stored, wanted, tokens, layers, heads):
    a, b = layout(stored, tokens, layers, heads), layout(wanted, tokens, layers, heads)
    assert convert_page(memoryview(labelled(a)), a, b) == labelled(b)


def test_in_place_over_scattered_buffers():
    a, b = layout(Order.LAYER), layout(Order.HEAD)
    page = bytearray(labelled(a))
    cuts = [memoryview(page)[:5], memoryview(page)[5:40], memoryview(page)[40:]]
    convert_in_place(cuts, a, b)
    assert bytes(page) == labelled(b)


def test_sizes():
    assert layout(Order.LAYER).plane_bytes == (48, 24)
    assert layout(Order.LAYER).page_bytes == 72


@pytest.mark.parametrize(
    "other",
    [
        layout(Order.TOKEN, tokens=4),
        layout(Order.TOKEN, rows=(2, 4)),
        layout(Order.TOKEN, dtype="int32"),
        layout(Order.OPAQUE),
    ],
)
def test_what_does_not_convert(other):
    assert not layout(Order.LAYER).converts_to(other)
    assert layout(Order.LAYER).converts_to(layout(Order.HEAD))
    assert layout(Order.OPAQUE).converts_to(layout(Order.OPAQUE))


@pytest.mark.parametrize("bad", [{"tokens": 0}, {"rows": ()}, {"rows": (4, 0)}])
def test_impossible_layouts(bad):
    with pytest.raises(ValueError, match="positive"):
        layout(Order.LAYER, **bad)
