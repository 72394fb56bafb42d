"""What goes in comes out, through every combination of tiers and every way to cut a sequence."""

import random
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.backends.deadline import Deadline
from sgkv.chunk.convert import convert_page
from sgkv.chunk.layout import Order
from sgkv.reasons import MissReason
from sgkv.store.span import Span
from tests.store.conftest import (
    PAGE_BYTES,
    Rig,
    blank_pages,
    chain,
    found_in,
    joined,
    layout,
    namespace,
    put,
    random_pages,
    read,
)  # fmt: skip


def test_round_trip(rig):
    session = rig.store().open(namespace(), layout())
    hashes, pages = chain(11), random_pages(11)
    assert found_in(session, hashes).pages == 0
    assert put(session, hashes, pages) == [True] * 11
    assert found_in(session, hashes).pages == 11
    assert read(session, hashes) == ([None] * 11, joined(pages))


def test_a_longer_query_hits_its_stored_prefix_and_says_why_it_ends(rig):
    session = rig.store().open(namespace(), layout())
    hashes = chain(12)
    put(session, hashes[:8], random_pages(8))
    found = found_in(session, hashes)
    assert (found.pages, found.reason) == (8, MissReason.ABSENT)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_cut_of_writes_and_reads_gives_the_same_bytes(rig, cuts, order: random.Random):
    session = rig.store(cpu_bytes=64 << 20).open(namespace(tenant=uuid4().hex), layout())
    total = sum(cuts)
    hashes, pages = chain(total), random_pages(total)
    start = 0
    for length in cuts:
        stop = start + length
        assert all(put(session, hashes[start:stop], pages[start:stop], before=hashes[:start]))
        start = stop
    for length in order.sample(cuts, len(cuts)):
        begin = order.randrange(total - length + 1)
        assert found_in(session, hashes).pages == total
        reasons, got = read(session, hashes[begin : begin + length], before=hashes[:begin])
        assert reasons == [None] * length
        assert got == joined(pages[begin : begin + length])


def test_without_positions_pages_are_stored_one_by_one_and_found_with_them(rig):
    session = rig.store().open(namespace(), layout())
    hashes, pages = chain(8), random_pages(8)
    assert all(session.set(Span(hashes, None), pages, Deadline(10)))
    assert found_in(session, hashes).pages == 8
    assert read(session, hashes, before=()) == ([None] * 8, joined(pages))


def test_chunks_are_read_without_positions_after_a_lookup_that_had_them(disk_rig):
    session = disk_rig.store().open(namespace(), layout())
    hashes, pages = chain(8), random_pages(8)
    put(session, hashes, pages)
    found_in(session, hashes)
    into = blank_pages(2)
    assert session.get(Span(hashes[5:7], None), into, Deadline(10)) == [None, None]
    assert joined(into) == joined(pages[5:7])


def test_existing_pages_count_as_stored_and_keep_their_bytes(rig):
    session = rig.store().open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes, pages)
    assert put(session, hashes, random_pages(4)) == [True] * 4
    assert read(session, hashes)[1] == joined(pages)


def test_restart_keeps_what_was_on_disk(two_tier_rig):
    store = two_tier_rig.store()
    hashes, pages = chain(11), random_pages(11)
    put(store.open(namespace(), layout()), hashes, pages)
    again = two_tier_rig.restart(store).open(namespace(), layout())
    assert found_in(again, hashes).pages == 11
    assert read(again, hashes) == ([None] * 11, joined(pages))


@pytest.mark.parametrize("field", ["tenant", "weights", "epoch", "kv_dtype", "cell", "pool", "numerics"])
def test_another_identity_never_hits(rig, field):
    store = rig.store()
    hashes = chain(8)
    put(store.open(namespace(), layout()), hashes, random_pages(8))
    store.flush(10)
    other = store.open(namespace(**{field: "other"}), layout())
    assert found_in(other, hashes).pages == 0
    assert read(other, hashes)[0] == [MissReason.ABSENT] * 8


@pytest.mark.parametrize("reader", [Order.TOKEN, Order.HEAD, Order.LAYER])
@pytest.mark.parametrize("writer", [Order.TOKEN, Order.HEAD, Order.LAYER])
def test_another_byte_order_is_converted(rig, writer, reader):
    store = rig.store()
    hashes, pages = chain(5), random_pages(5)
    put(store.open(namespace(), layout(writer)), hashes, pages)
    assert store.flush(10)
    session = store.open(namespace(), layout(reader))
    expected = [convert_page(memoryview(page), layout(writer), layout(reader)) for page in joined(pages)]
    reasons, got = read(session, hashes)
    if rig.tiers == "cpu" and writer is not reader:  # arena pages carry no header to convert by
        assert reasons == [MissReason.ABSENT] * 5
    else:
        assert (reasons, got) == ([None] * 5, expected)


def test_what_is_read_from_disk_is_promoted(two_tier_rig):
    store = two_tier_rig.store()
    hashes, pages = chain(8), random_pages(8)
    put(store.open(namespace(), layout()), hashes, pages)
    store = two_tier_rig.restart(store)
    session = store.open(namespace(), layout())
    read(session, hashes)
    assert store.flush(10)
    assert store.counters.get("promoted_pages") == 8
    assert read(session, hashes) == ([None] * 8, joined(pages))
    assert store.counters.get("hit_pages", "disk") == 8
    assert store.counters.get("hit_pages", "cpu") == 8


def test_promotion_converts_too(two_tier_rig):
    store = two_tier_rig.store()
    hashes, pages = chain(4), random_pages(4)
    put(store.open(namespace(), layout(Order.TOKEN)), hashes, pages)
    store.flush(10)
    session = store.open(namespace(), layout(Order.LAYER))
    expected = [convert_page(memoryview(p), layout(Order.TOKEN), layout(Order.LAYER)) for p in joined(pages)]
    assert read(session, hashes)[1] == expected
    assert store.flush(10)
    assert read(session, hashes)[1] == expected
    assert store.counters.get("hit_pages", "cpu") == 4


def test_clear_forgets_this_namespace_only(rig):
    store = rig.store()
    hashes = chain(8)
    mine, other = store.open(namespace(), layout()), store.open(namespace(tenant="other"), layout())
    for session in (mine, other):
        put(session, hashes, random_pages(8))
    mine.clear()
    assert found_in(mine, hashes).pages == 0
    assert found_in(other, hashes).pages == 8
    assert put(mine, hashes, random_pages(8)) == [True] * 8
    assert found_in(mine, hashes).pages == 8


def test_clear_reaches_what_was_still_queued(two_tier_rig):
    store = two_tier_rig.store()
    session = store.open(namespace(), layout())
    put(session, chain(7), random_pages(7))
    session.clear()
    store.flush(10)
    assert found_in(session, chain(7)).pages == 0
    assert found_in(two_tier_rig.restart(store).open(namespace(), layout()), chain(7)).pages == 0


def test_expired_is_a_miss_with_its_reason(disk_rig):
    now = [1_000_000.0]
    session = disk_rig.store(ttl=100.0, clock=lambda: now[0]).open(namespace(), layout())
    hashes = chain(4)
    put(session, hashes, random_pages(4))
    assert read(session, hashes)[0] == [None] * 4
    now[0] += 200.0
    assert read(session, hashes)[0] == [MissReason.EXPIRED] * 4


def test_an_expired_blob_goes_and_is_no_evidence_of_damage(disk_rig):
    now = [1000.0]
    store = disk_rig.store(ttl=100.0, clock=lambda: now[0])
    session = store.open(namespace(), layout())
    put(session, chain(4), random_pages(4))
    now[0] += 200
    read(session, chain(4))
    assert found_in(session, chain(4)).pages == 0
    assert store.stats().tiers["disk"].counters.get("quarantined", 0) == 0


def test_what_was_promoted_expires_with_what_it_came_from(two_tier_rig):
    now = [1000.0]
    store = two_tier_rig.store(ttl=100.0, clock=lambda: now[0])
    put(store.open(namespace(), layout()), chain(4), random_pages(4))
    store = two_tier_rig.restart(store, ttl=100.0, clock=lambda: now[0])
    session = store.open(namespace(), layout())
    now[0] += 99
    assert read(session, chain(4))[0] == [None] * 4
    assert store.flush(10)
    assert store.counters.get("promoted_pages") == 4
    now[0] += 2
    assert read(session, chain(4))[0] == [MissReason.EXPIRED] * 4


def test_a_page_that_came_while_the_store_was_closing_is_let_go(two_tier_rig):
    """After the last flush, before the queue is shut: its lease would keep the arena's block for ever."""
    store = two_tier_rig.store()
    session = store.open(namespace(), layout())
    behind = store._write_behind
    flush = behind.flush

    def flush_then_set(timeout):
        done = flush(timeout)
        put(session, chain(1), random_pages(1))
        return done

    behind.flush = flush_then_set
    store.close()
    assert store.stats().tiers["cpu"].leases == 0
    assert store.counters.get("write_behind_dropped_pages") == 1


def test_when_time_is_up_the_tiers_that_were_not_asked_are_not_to_blame(rig):
    session = rig.store().open(namespace(), layout())
    assert session.get(Span(chain(2)), blank_pages(2), Deadline(0)) == [MissReason.TIMEOUT] * 2


def test_a_full_arena_drops_and_says_so(tmp_path):
    rig = Rig(tmp_path, "cpu", [])
    session = rig.store(cpu_bytes=8 * PAGE_BYTES // 4096 * 4096 or 8192).open(namespace(), layout())
    session.pin(Span(chain(2)))
    assert put(session, chain(2), random_pages(2)) == [True, True]
    session.pin(Span(chain(2)))
    results = put(session, chain(40, seed=1), random_pages(40))
    assert len(results) == 40
    assert found_in(session, chain(2)).pages == 2, "pinned pages stay"


def test_pinned_chunks_survive_eviction_on_disk(tmp_path):
    rig = Rig(tmp_path, "disk", [])
    session = rig.store(disk_bytes=40 * PAGE_BYTES).open(namespace(), layout())
    kept = chain(4)
    put(session, kept, random_pages(4))
    assert session.pin(Span(kept)) == [True] * 4
    for seed in range(1, 20):
        put(session, chain(4, seed), random_pages(4))
    assert found_in(session, kept).pages == 4
    assert found_in(session, chain(4, 1)).pages == 0
    session.pin(Span(kept), pinned=False)
    for seed in range(20, 40):
        put(session, chain(4, seed), random_pages(4))
    assert found_in(session, kept).pages == 0


def test_eviction_takes_the_end_of_a_chain_first(tmp_path):
    rig = Rig(tmp_path, "disk", [])
    session = rig.store(disk_bytes=60 * PAGE_BYTES).open(namespace(), layout())
    long = chain(32)
    for start in range(0, 32, 8):
        put(session, long[start : start + 8], random_pages(8), before=long[:start])
    seed, left = 1, 32
    while left == 32:
        put(session, chain(4, seed), random_pages(4))
        left, seed = found_in(session, long).pages, seed + 1
    assert 0 < left < 32, "a prefix is left, not a hole at its start"


def test_every_miss_is_counted_by_reason(rig):
    store = rig.store()
    session = store.open(namespace(), layout())
    read(session, chain(3))
    assert store.counters.snapshot()["miss_pages"] == {"absent": 3}
    store.close()
    assert read(session, chain(3))[0] == [MissReason.CLOSED] * 3 or rig.tiers == "cpu+disk"
