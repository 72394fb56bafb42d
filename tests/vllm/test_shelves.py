"""Chunks in a store: read back as they were written, under names that other readers know."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sgkv.backends.deadline import Deadline
from sgkv.chunk.layout import Order, PageLayout
from sgkv.config import Config, ModelConfig, load, resolve
from sgkv.grid import Share, cells
from sgkv.identity import Namespace
from sgkv.model import ModelIdentity
from sgkv.store.base import PageSession
from sgkv.store.build import build_store
from sgkv.store.cells import open_cells
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store
from sgkv.vllm.chains import Chain
from sgkv.vllm.naming import open_pages
from sgkv.vllm.rows import Packing, RowShape
from sgkv.vllm.shelves import PageShelf, RowShelf, Wanted

PAGE, CHUNK, BLOCK = 16, 32, 8
SHAPE = RowShape(Packing.VEC, "bfloat16", 2, layers=2, block_tokens=BLOCK, heads=2, head_dim=8)
ROW = CHUNK // BLOCK * SHAPE.block_bytes
TOKENS = random.Random(0).choices(range(1000), k=20 * CHUNK)
NAMESPACE = Namespace("t", "w", "", "a", "n", "bfloat16", PAGE, 256, "kv", "all", "g")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    options = {"tiers": [{"type": "disk", "path": str(tmp_path / "kv"), "capacity": "64MiB"}]}
    made = build_store(resolve(load(options, environ={}).config))
    yield made
    made.close()


def chain(salt: str | None = None) -> Chain:
    return Chain(TOKENS, salt, PAGE)


def chunks(*indices: int) -> list[Wanted]:
    return [Wanted(bytes([index]) * 32 + bytes(4), (index + 1) * CHUNK) for index in indices]


def rows(*indices: int) -> list[memoryview]:
    """A row for each chunk, which its index decides."""
    return [memoryview(bytearray(random.Random(index).randbytes(ROW))) for index in indices]


def empty(number: int) -> list[memoryview]:
    return [memoryview(bytearray(ROW)) for _ in range(number)]


def soon() -> Deadline:
    return Deadline(30.0)


def page_session(store: Store) -> Session:
    return store.open(NAMESPACE, SHAPE.layout(PAGE))


def test_pages_come_back_as_rows(store: Store) -> None:
    shelf = PageShelf(page_session(store), CHUNK, SHAPE)
    assert shelf.write(chunks(0, 1, 2), rows(0, 1, 2), chain(), soon()) == [True] * 3
    wanted, filled = chunks(0, 1, 2, 3), empty(4)
    assert shelf.find(wanted, chain(), soon()) == [True, True, True, False]
    assert shelf.read(wanted, filled, chain(), soon()) == [True, True, True, False]
    assert filled[:3] == rows(0, 1, 2)


def test_chunks_with_a_gap_between_them_are_named_by_their_places(store: Store) -> None:
    shelf, filled = PageShelf(page_session(store), CHUNK, SHAPE), empty(3)
    assert shelf.write(chunks(0, 1, 5), rows(0, 1, 5), chain(), soon()) == [True] * 3
    assert shelf.find(chunks(1, 4, 5), chain(), soon()) == [True, False, True]
    assert shelf.read(chunks(1, 4, 5), filled, chain(), soon()) == [True, False, True]
    assert filled[2] == rows(5)[0]


def test_another_salt_and_no_chain_find_nothing(store: Store) -> None:
    shelf = PageShelf(page_session(store), CHUNK, SHAPE)
    assert shelf.write(chunks(0), rows(0), None, soon()) == [False]
    assert shelf.write(chunks(0), rows(0), chain(), soon()) == [True]
    assert shelf.find(chunks(0), chain("salt"), soon()) == [False]
    assert shelf.find(chunks(0), None, soon()) == [False]


def test_pages_lie_in_the_canonical_order(store: Store) -> None:
    """What `RowShape` makes of a row is what another engine's session reads under the page hashes."""
    shelf, session = PageShelf(page_session(store), CHUNK, SHAPE), page_session(store)
    shelf.write(chunks(0), rows(0), chain(), soon())
    size = session.layout.page_bytes
    pages = memoryview(bytearray(CHUNK // PAGE * size))
    cut = [[pages[at : at + size]] for at in range(0, len(pages), size)]
    assert session.get(Span(chain().pages(CHUNK // PAGE)), cut, soon()) == [None] * (CHUNK // PAGE)
    expected = memoryview(bytearray(len(pages)))
    SHAPE.to_pages(rows(0)[0], expected, PAGE)
    assert pages == expected


GRID = Config(model=ModelConfig(weights="r1", head_group=1))
MODEL = ModelIdentity("w", "a", "n", "vllm")


def rank_of_two(store: Store, head: int) -> PageSession:
    """Another engine's session for one of the two heads, whose pages are ordered by tokens."""
    layout = replace(SHAPE.layout(PAGE), order=Order.TOKEN, heads=1)
    share = Share(layers=range(SHAPE.layers), layers_name="", heads=range(head, head + 1), heads_name="")
    return open_cells(store, cells(GRID, MODEL, "", pool="kv", layout=layout, share=share), layout)


def pages_of(index: int, head: int) -> list[bytes]:
    """What such a rank has of a row, page by page: ``[K or V][token][layer][dim]``."""
    canonical = memoryview(bytearray(ROW))
    SHAPE.to_pages(rows(index)[0], canonical, PAGE)
    values = np.frombuffer(canonical, np.uint16)
    values = values.reshape(-1, 2, SHAPE.layers, PAGE, SHAPE.heads, SHAPE.head_dim)
    return [page[:, :, :, head].swapaxes(1, 2).tobytes() for page in values]


def test_ranks_of_another_engine_read_their_heads_of_rows(store: Store) -> None:
    shelf = PageShelf(open_pages(store, GRID, MODEL, SHAPE, PAGE, ""), CHUNK, SHAPE)
    assert shelf.write(chunks(0), rows(0), chain(), soon()) == [True]
    for head in range(SHAPE.heads):
        session = rank_of_two(store, head)
        pages = [[memoryview(bytearray(session.layout.page_bytes))] for _ in pages_of(0, head)]
        assert session.get(Span(chain().pages(len(pages))), pages, soon()) == [None] * len(pages)
        assert [bytes(page) for (page,) in pages] == pages_of(0, head)


@pytest.mark.parametrize(("rank", "ranks", "head"), [(0, 2, 0), (1, 2, 1), (1, 4, 0), (2, 4, 1)])
def test_ranks_of_vllm_read_theirs_too(store: Store, rank: int, ranks: int, head: int) -> None:
    """Two heads on four ranks: neighbours hold the same one, and the first of them writes it."""
    whole = PageShelf(open_pages(store, GRID, MODEL, SHAPE, PAGE, ""), CHUNK, SHAPE)
    assert whole.write(chunks(0), rows(0), chain(), soon()) == [True]
    one = replace(SHAPE, heads=1)
    session = open_pages(store, GRID, MODEL, one, PAGE, "", rank=rank, ranks=ranks, kv_heads=SHAPE.heads)
    pages = [[memoryview(bytearray(session.layout.page_bytes))] for _ in pages_of(0, head)]
    span = Span(chain().pages(len(pages)))
    assert session.get(span, pages, soon()) == [None] * len(pages)
    values = [np.frombuffer(page, np.uint16).reshape(2, SHAPE.layers, PAGE, -1) for (page,) in pages]
    assert [page.swapaxes(1, 2).tobytes() for page in values] == pages_of(0, head)


def test_rows_are_put_together_from_the_heads_of_another_engines_ranks(store: Store) -> None:
    shelf = PageShelf(open_pages(store, GRID, MODEL, SHAPE, PAGE, ""), CHUNK, SHAPE)
    for head in range(SHAPE.heads):
        assert shelf.find(chunks(0), chain(), soon()) == [False]
        pages = [[memoryview(bytearray(page))] for page in pages_of(0, head)]
        assert all(rank_of_two(store, head).set(Span(chain().pages(len(pages))), pages, soon()))
    filled = empty(1)
    assert shelf.read(chunks(0), filled, chain(), soon()) == [True]
    assert filled == rows(0)


def test_chunks_that_are_not_whole_pages_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="block_size"):
        PageShelf(page_session(store), PAGE + BLOCK, SHAPE)


def test_rows_are_kept_as_they_are_in_any_order(store: Store) -> None:
    layout = PageLayout(Order.OPAQUE, "bfloat16", 1, 1, 1, (ROW,))
    shelf = RowShelf(store.open(replace(NAMESPACE, pool="rows"), layout), CHUNK)
    assert shelf.write(chunks(7, 2), rows(7, 2), None, soon()) == [True, True]
    filled = empty(3)
    assert shelf.find(chunks(2, 3, 7), None, soon()) == [True, False, True]
    assert shelf.read(chunks(2, 3, 7), filled, None, soon()) == [True, False, True]
    assert [filled[0], filled[2]] == rows(2, 7)
