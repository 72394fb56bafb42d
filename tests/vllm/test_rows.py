"""Rows of vLLM's as canonical pages and back, against the formulas written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.vllm.rows import Packing, RowShape

LAYERS, HEADS, DIM = 2, 3, 8
PADDING = b"padding"


def shape(packing: Packing, block_tokens: int, item: int) -> RowShape:
    return RowShape(packing, "any", item, LAYERS, block_tokens, HEADS, DIM)


def expected(row: np.ndarray, packing: Packing, block_tokens: int, page_tokens: int) -> np.ndarray:
    """Pages ``[page][plane][layer][token][head][dim]``, element by element."""
    row = row.reshape(LAYERS, -1, HEADS, 2 * block_tokens * DIM)
    tokens = row.shape[1] * block_tokens
    pages = np.empty((tokens // page_tokens, 2, LAYERS, page_tokens, HEADS, DIM), row.dtype)
    for layer, token, head, dim in np.ndindex(LAYERS, tokens, HEADS, DIM):
        cell, slot = row[layer, token // block_tokens, head], token % block_tokens
        if packing is Packing.FUSED:
            places = (slot * 2 * DIM + dim, slot * 2 * DIM + DIM + dim)
        else:
            places = (dim * block_tokens + slot, block_tokens * DIM + slot * DIM + dim)
        pages[token // page_tokens, :, layer, token % page_tokens, head, dim] = cell[list(places)]
    return pages


@given(
    packing=st.sampled_from(Packing),
    item=st.sampled_from([2, 4]),
    sizes=st.sampled_from([(4, 4, 2), (4, 8, 4), (8, 4, 2), (16, 4, 1), (4, 16, 8), (32, 8, 1)]),
    seed=st.integers(0, 1000),
)
def test_every_value_finds_its_place_and_back(packing: Packing, item: int, sizes: tuple, seed: int) -> None:
    block_tokens, page_tokens, blocks = sizes
    rows = shape(packing, block_tokens, item)
    row = np.random.default_rng(seed).bytes(blocks * rows.block_bytes)
    pages = memoryview(bytearray(len(row)))
    rows.to_pages(memoryview(row + PADDING), pages, page_tokens)
    wanted = expected(np.frombuffer(row, f"u{item}"), packing, block_tokens, page_tokens)
    assert pages.tobytes() == wanted.tobytes()
    back = bytearray(len(row)) + bytearray(PADDING)
    rows.from_pages(pages, memoryview(back), page_tokens)
    assert back == row + PADDING


def test_blocks_and_pages_that_do_not_divide_each_other_are_refused() -> None:
    rows = shape(Packing.VEC, 48, 2)
    row = memoryview(bytearray(4 * rows.block_bytes))
    with pytest.raises(ValueError, match="do not divide each other"):
        rows.to_pages(row, row, 64)
