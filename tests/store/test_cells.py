"""Pages in cells: one batch for all of a rank's, and whole only where every cell is."""

import itertools
import random
from collections import Counter
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper
from sgkv.chunk.cut import Cut
from sgkv.chunk.layout import Order, PageLayout
from sgkv.reasons import MissReason
from sgkv.store.base import PageSession
from sgkv.store.cells import Cell, open_cells
from sgkv.store.span import Span
from sgkv.store.store import Store
from tests.store.conftest import MIB, Rig, chain, found_in, joined, namespace, put

LAYERS, HEADS = 2, 4
ORDERS = [Order.LAYER, Order.TOKEN, Order.HEAD]


def layout(order: Order = Order.TOKEN, layers: int = LAYERS, heads: int = HEADS) -> PageLayout:
    return PageLayout(order, "float32", 16, layers, heads, (64, 32))


def rank(
    store: Store,
    order: Order,
    heads: range,
    layers: range = range(LAYERS),
    *,
    tenant: str = "t",
    **options: int,
) -> PageSession:
    """A session for a rank that holds some of the model, over a grid of single layers and heads."""
    page = layout(order, len(layers), len(heads))
    cells = [
        Cell(
            namespace(tenant=tenant, cell=f"{layer} {head}"),
            Cut(page, _one(layer - layers.start), _one(head - heads.start)),
        )
        for layer, head in itertools.product(layers, heads)
    ]
    return open_cells(store, cells, page, **options)


def _one(at: int) -> range:
    return range(at, at + 1)


def model_page(index: int, order: Order, heads: range, layers: range = range(LAYERS)) -> list[memoryview]:
    """A rank's part of page `index` of the model, row by row."""
    axes = {"layer": layers, "token": range(16), "head": heads}
    names = {
        Order.LAYER: ("layer", "token", "head"),
        Order.TOKEN: ("token", "layer", "head"),
        Order.HEAD: ("head", "token", "layer"),
    }[order]
    page = bytearray()
    for plane, row in ((0, 64), (1, 32)):
        for place in itertools.product(*(axes[name] for name in names)):
            at = dict(zip(names, place, strict=True))
            page += bytes([index, plane, at["layer"], at["token"], at["head"], 0, 0, 0]) * (row // 8)
    return _cut(page, 1000)


def _cut(page: bytearray, size: int) -> list[memoryview]:
    """Buffers that end anywhere: only what they hold together counts."""
    return [memoryview(page)[start : start + size] for start in range(0, len(page), size)]


def blank(session: PageSession, count: int) -> list[list[memoryview]]:
    return [_cut(bytearray(session.layout.page_bytes), 777) for _ in range(count)]


def model(count: int, order: Order, heads: range, layers: range = range(LAYERS)) -> list[list[memoryview]]:
    return [model_page(index, order, heads, layers) for index in range(count)]


orders = st.sampled_from(ORDERS)
shares = st.sampled_from([range(4), range(2), range(2, 4), range(1, 2), range(3, 4)])
stages = st.sampled_from([range(2), range(1), range(1, 2)])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(orders, orders, shares, stages, st.integers(1, 6))
def test_any_rank_reads_its_part_of_what_one_has_written(
    rig: Rig, one: Order, other: Order, heads: range, layers: range, batch: int
) -> None:
    """Of any byte order where tiers hold headers; the cpu tier knows its own alone."""
    other = one if rig.tiers == "cpu" else other
    store, tenant = rig.store(cpu_bytes=64 * MIB), uuid4().hex
    hashes = chain(6)
    writer = rank(store, one, range(HEADS), tenant=tenant)
    for start in range(0, 6, batch):
        stop = min(6, start + batch)
        pages = model(6, one, range(HEADS))[start:stop]
        assert put(writer, hashes[start:stop], pages, hashes[:start]) == [True] * (stop - start)
    assert store.flush(10)
    reader = rank(store, other, heads, layers, tenant=tenant)
    assert found_in(reader, hashes).pages == 6
    into = blank(reader, 6)
    assert reader.get(Span(hashes), into, Deadline(10)) == [None] * 6
    assert joined(into) == joined(model(6, other, heads, layers))


@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_that_does_not_fit_the_scratch_memory_goes_in_pieces(rig: Rig, order: Order) -> None:
    """A chunk of four pages at least."""
    session, hashes = rank(rig.store(), order, range(HEADS), scratch_bytes=1), chain(11)
    assert put(session, hashes[:3], model(11, order, range(HEADS))[:3]) == [True] * 3
    assert put(session, hashes[3:], model(11, order, range(HEADS))[3:], hashes[:3]) == [True] * 8
    into = blank(session, 9)
    assert session.get(Span(hashes[2:], hashes[:2]), into, Deadline(10)) == [None] * 9
    assert joined(into) == joined(model(11, order, range(HEADS))[2:])


class Calls(Wrapper):
    """Counts the calls that a tier gets."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.made: Counter[str] = Counter()

    def probe(self, keys, deadline=None):
        self.made["probe"] += 1
        return super().probe(keys, deadline)

    def put(self, items, deadline=None):
        self.made["put"] += 1
        return super().put(items, deadline)

    def get(self, items, deadline=None):
        self.made["get"] += 1
        return super().get(items, deadline)


@pytest.mark.parametrize("heads", [range(1), range(4)], ids=["one cell", "four cells"])
def test_all_cells_of_a_rank_move_in_one_batch(disk_rig: Rig, heads: range) -> None:
    """As many calls of a tier as one cell takes: chunks and single pages are looked up and read apart."""
    tiers: list[Calls] = []

    def counted(backend):
        tiers.append(Calls(backend))
        return tiers[-1]

    session, hashes = rank(disk_rig.store(wrap=counted), Order.TOKEN, heads, range(1)), chain(6)
    assert all(put(session, hashes, model(6, Order.TOKEN, heads, range(1))))
    assert found_in(session, hashes).pages == 6
    assert session.get(Span(hashes), blank(session, 6), Deadline(10)) == [None] * 6
    assert tiers[0].made == {"put": 1, "probe": 2, "get": 2}


def test_a_rank_with_one_cell_is_a_plain_session(disk_rig: Rig) -> None:
    """Nothing stands between, and nothing is copied."""
    store = disk_rig.store()
    assert type(rank(store, Order.TOKEN, range(1), range(1))) is type(store.open(namespace(), layout()))


def test_a_damaged_cell_spoils_its_pages_alone(disk_rig: Rig) -> None:
    store = disk_rig.store()
    session, hashes = rank(store, Order.HEAD, range(HEADS)), chain(8)
    assert all(put(session, hashes, model(8, Order.HEAD, range(HEADS))))
    blob = random.Random(1).choice(sorted(path for path in disk_rig.path.rglob(f"*{hashes[3]}*")))
    with blob.open("r+b") as file:
        file.seek(-1, 2)  # in the last page of the first chunk
        file.write(b"\xff")
    reasons = session.get(Span(hashes), blank(session, 8), Deadline(10))
    assert reasons == [None] * 3 + [MissReason.CORRUPT] + [None] * 4
    assert store.stats().counters["miss_pages"] == {"corrupt": 1}
    assert store.stats().counters["hit_pages"] == {"disk": 7}


def test_what_only_some_cells_have_in_the_cpu_tier_is_served_from_below(two_tier_rig: Rig) -> None:
    """And counts for the slower of the two."""
    store = two_tier_rig.store()
    session, hashes = rank(store, Order.TOKEN, range(2)), chain(4)
    assert all(put(session, hashes, model(4, Order.TOKEN, range(2))))
    assert store.flush(10)
    store = two_tier_rig.restart(store)
    half, both = (rank(store, Order.TOKEN, heads) for heads in (range(1), range(2)))
    assert half.get(Span(hashes), blank(half, 4), Deadline(10)) == [None] * 4
    assert store.flush(10)  # promoted
    assert found_in(both, hashes).pages == 4
    into = blank(both, 4)
    assert both.get(Span(hashes), into, Deadline(10)) == [None] * 4
    assert joined(into) == joined(model(4, Order.TOKEN, range(2)))
    assert store.stats().counters["hit_pages"] == {"disk": 8}


def test_cells_are_cleared_and_pinned_together(disk_rig: Rig) -> None:
    session, hashes = rank(disk_rig.store(), Order.TOKEN, range(HEADS)), chain(4)
    assert all(put(session, hashes, model(4, Order.TOKEN, range(HEADS))))
    assert session.pin(Span(hashes)) == [True] * 4
    assert session.lease(Span(hashes)) == [None] * 4
    session.clear()
    assert found_in(session, hashes).pages == 0
