"""Parts of pages: exactly the rows of their layers and heads, wherever a page's buffers begin and end."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.chunk.cut import Cut
from sgkv.chunk.layout import Order, PageLayout

ORDERS = [Order.LAYER, Order.TOKEN, Order.HEAD]
ROWS = (6, 4)
AXES = {Order.LAYER: "lth", Order.TOKEN: "tlh", Order.HEAD: "htl"}


def layout(order: Order, layers: int = 4, heads: int = 4, tokens: int = 3) -> PageLayout:
    return PageLayout(order, "float16", tokens, layers, heads, ROWS)


def spelled(order: Order, layers: range, heads: range, tokens: int = 3) -> bytes:
    """A page of which every row says which plane, layer, token and head it is, one byte each."""
    axes = {"l": layers, "t": range(tokens), "h": heads}
    page = bytearray()
    for plane, row in enumerate(ROWS):
        for index in itertools.product(*(axes[axis] for axis in AXES[order])):
            at = dict(zip(AXES[order], index, strict=True))
            page += bytes([plane, at["l"], at["t"], at["h"], 0, 0][:row])
    return bytes(page)


def buffers(page: bytes, ends: list[int]) -> list[memoryview]:
    """A writable page in pieces that end where `ends` says."""
    view, marks = memoryview(bytearray(page)), sorted({0, len(page), *(end % len(page) for end in ends)})
    return [view[start:stop] for start, stop in itertools.pairwise(marks)]


def test_golden_part() -> None:
    """Layer 1, heads 2 and 3 of a page of two tokens by [token][layer][head]."""
    page = [memoryview(spelled(Order.TOKEN, range(2), range(4), tokens=2))]
    part = Cut(layout(Order.TOKEN, 2, 4, 2), range(1, 2), range(2, 4))
    into = memoryview(bytearray(part.layout.page_bytes))
    part.gather(page, into)
    assert into.hex(" ", 2) == (
        "0001 0002 0000 0001 0003 0000 0001 0102 0000 0001 0103 0000 0101 0002 0101 0003 0101 0102 0101 0103"
    )


parts = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda two: range(min(two), max(two) + 1))
ends = st.lists(st.integers(0, 500), max_size=6)


@given(st.sampled_from(ORDERS), parts, parts, ends)
def test_a_part_is_gathered_and_put_back(order: Order, layers: range, heads: range, cuts: list[int]) -> None:
    whole = spelled(order, range(4), range(4))
    cut, wanted = Cut(layout(order), layers, heads), spelled(order, layers, heads)
    into = memoryview(bytearray(cut.layout.page_bytes))
    cut.gather(buffers(whole, cuts), into)
    assert bytes(into) == wanted
    page = buffers(bytes(len(whole)), cuts)
    cut.scatter(into, page)
    assert sum(map(bool, b"".join(page))) == sum(map(bool, wanted))  # nothing beside the part
    again = memoryview(bytearray(len(into)))
    cut.gather(page, again)
    assert again == into


@given(st.sampled_from(ORDERS), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 4]), ends)
def test_the_parts_of_a_grid_are_the_page(order: Order, head_group: int, layer_group: int, cuts: list[int]):
    whole = spelled(order, range(4), range(4))
    page = buffers(bytes(len(whole)), cuts)
    for layer, head in itertools.product(range(0, 4, layer_group), range(0, 4, head_group)):
        layers, heads = range(layer, min(4, layer + layer_group)), range(head, head + head_group)
        Cut(layout(order), layers, heads).scatter(memoryview(spelled(order, layers, heads)), page)
    assert b"".join(page) == whole


RUNS = {
    (Order.LAYER, range(1, 3), range(4)): True,
    (Order.LAYER, range(4), range(2)): False,
    (Order.TOKEN, range(4), range(2)): False,
    (Order.TOKEN, range(1, 3), range(4)): False,
    (Order.HEAD, range(4), range(1, 3)): True,
    (Order.HEAD, range(2), range(4)): False,
    (Order.TOKEN, range(4), range(4)): True,
}


@pytest.mark.parametrize(("part", "contiguous"), RUNS.items(), ids=str)
def test_which_parts_lie_in_one_run_a_plane(part: tuple[Order, range, range], contiguous: bool) -> None:
    order, layers, heads = part
    assert Cut(layout(order), layers, heads).contiguous is contiguous


@given(st.sampled_from([(Order.LAYER, "layers"), (Order.HEAD, "heads")]), parts, ends)
def test_a_part_in_runs_is_seen_in_place(where: tuple[Order, str], part: range, cuts: list[int]) -> None:
    order, axis = where
    bounds = {"layers": range(4), "heads": range(4), axis: part}
    cut, page = Cut(layout(order), **bounds), buffers(spelled(order, range(4), range(4)), cuts)
    views = cut.views(page)
    assert b"".join(views) == spelled(order, **bounds)
    for view in views:
        view[:] = bytes(len(view))
    into = memoryview(bytearray(cut.layout.page_bytes))
    cut.gather(page, into)
    assert not any(into)


@pytest.mark.parametrize(
    ("order", "layers", "heads"),
    [
        (Order.OPAQUE, range(1), range(1)),
        (Order.LAYER, range(3, 5), range(4)),
        (Order.LAYER, range(0), range(4)),
    ],
)
def test_what_is_no_part_of_a_page(order: Order, layers: range, heads: range) -> None:
    with pytest.raises(ValueError, match="no part"):
        Cut(layout(order), layers, heads)
