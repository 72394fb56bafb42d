"""The gate in a store: off it changes nothing, in shadow it counts, on it shortens the hit of a slow tier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.backends.simulated import Simulated
from sgkv.config.model import GateConfig
from sgkv.reasons import MissReason
from sgkv.store.gating import gated
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from tests.store.conftest import blank_pages, chain, layout, namespace, random_pages

PAGES = chain(8)


@pytest.fixture
def open_store(tmp_path: Path):
    from sgkv.backends.disk import DiskBackend

    stores = []

    def build(mode: str, latency: float, clock: Callable[[], float] | None = None) -> Store:
        disk = Simulated(DiskBackend(tmp_path / "tier", 1 << 30, min_free_bytes=0), latency_s=latency)
        options = StoreOptions(chunk_tokens=64)
        tiers, gate = gated([Tier("disk", disk)], GateConfig(mode=mode, prefill_tokens_s=10_000, control=0))
        stores.append(Store(tiers, options, gate=gate))
        return stores[-1]

    yield build
    for store in stores:
        store.close()


def filled(store: Store):
    session = store.open(namespace(), layout())
    assert all(session.set(Span(PAGES), random_pages(8), Deadline(5)))
    for _ in range(4):  # the gate learns how slow the tier is
        assert session.get(Span(PAGES), blank_pages(8), Deadline(5)) == [None] * 8
    return session


def test_what_is_slower_than_computing_is_a_shorter_hit_with_its_reason(open_store) -> None:
    store = open_store("on", 0.05)  # 128 tokens take 13 ms to compute
    found = filled(store).lookup(Span(PAGES), Deadline(5))
    assert (found.pages, found.reason) == (0, MissReason.NOT_WORTH_LOADING)
    assert store.counters.get("gate_pages", "compute") == 8
    assert "load 0 of 8 pages" in store.gate.last.explain()


def test_each_decision_is_explained_in_the_log_where_that_is_asked_for(open_store, caplog) -> None:
    session = filled(open_store("shadow", 0.05))
    with caplog.at_level("DEBUG", logger="sgkv"):
        session.lookup(Span(PAGES), Deadline(5))
    (line,) = [record.getMessage() for record in caplog.records if "gate" in record.getMessage()]
    assert PAGES[0][:12] in line
    assert "load 0 of 8 pages: 8 pages to disk: load" in line


def test_in_shadow_it_is_only_counted(open_store) -> None:
    store = open_store("shadow", 0.05)
    found = filled(store).lookup(Span(PAGES), Deadline(5))
    assert (found.pages, found.reason) == (8, None)
    assert store.counters.get("gate_pages", "compute") == 8


def test_what_a_read_took_tells_whether_the_gate_was_right(open_store) -> None:
    store = open_store("shadow", 0.05)  # 128 tokens take 13 ms to compute
    session = filled(store)
    assert store.counters.get("gate_judged_pages", "compute_right") == 0, "nothing was decided"
    session.lookup(Span(PAGES), Deadline(5))
    assert session.get(Span(PAGES), blank_pages(8), Deadline(5)) == [None] * 8
    assert store.counters.get("gate_judged_pages", "compute_right") == 8


def test_what_is_quicker_than_computing_is_loaded(open_store) -> None:
    store = open_store("on", 0.0)
    session = filled(store)
    speed = store.gate._speeds["disk"]
    assert speed.known
    assert speed.seconds(1) >= 0
    long = GateConfig(mode="on", prefill_tokens_s=10, control=0)  # no disk is slower than that
    _, store.gate = gated([], long)
    assert session.lookup(Span(PAGES), Deadline(5)).pages == 8


def test_several_sessions_at_once_are_gated_too(open_store) -> None:
    store = open_store("on", 0.05)
    session = filled(store)
    (found,) = store.lookup_each([session], Span(PAGES), Deadline(5))
    assert found.reason is MissReason.NOT_WORTH_LOADING


def test_the_cells_of_a_page_are_one_decision(open_store) -> None:
    store = open_store("on", 0.05)
    sessions = [store.open(namespace(cell=cell), layout()) for cell in ("one", "other")]
    pages = [random_pages(8), random_pages(8)]
    assert all(map(all, store.set_each(sessions, Span(PAGES), pages, Deadline(5))))
    for _ in range(4):
        store.get_each(sessions, Span(PAGES), [blank_pages(8), blank_pages(8)], Deadline(5))
    found = store.lookup_each(sessions, Span(PAGES), Deadline(5))
    assert min(one.pages for one in found) == 0
    assert store.counters.get("gate_pages", "compute") == 8
