"""Everything a store holds has a bound, and both are shown."""

from sgkv.backends.guard import Guarded
from tests.store.conftest import chain, found_in, layout, namespace, put, random_pages, read

OWN = {"write_behind_bytes", "write_behind_threads", "promotion_pages", "promotion_threads", "memo_pages"}
CPU = {"copy_threads", "copy_queue"}
DISK = {
    f"{work}_{what}" for work in ("read", "write", "scan", "trash", "guard") for what in ("threads", "queue")
}


def test_what_is_in_use_and_its_bound_are_shown(two_tier_rig):
    store = two_tier_rig.store(wrap=lambda disk: Guarded(disk, max_inflight=3), write_behind_bytes=1 << 20)
    session = store.open(namespace(), layout())
    put(session, chain(9), random_pages(9))
    held = store.stats()
    assert held.bounds["write_behind_bytes"].used > 0, "the page outside a full chunk waits for others"
    assert store.flush(10.0)
    assert found_in(session, chain(9)).pages == 9
    assert read(session, chain(9))[0] == [None] * 9
    stats = store.stats()
    assert set(stats.bounds) == OWN
    assert set(stats.tiers["cpu"].bounds) == CPU
    assert set(stats.tiers["disk"].bounds) == DISK | {"guard_inflight"}
    assert stats.bounds["write_behind_bytes"] == (0, 1 << 20)
    assert stats.tiers["disk"].bounds["guard_threads"].limit == 3
    every = [stats.bounds, *(tier.bounds for tier in stats.tiers.values())]
    assert all(0 <= bound.used <= bound.limit for bounds in every for bound in bounds.values())


def test_what_lookups_remember_is_shown_and_goes_with_the_session(disk_rig):
    store = disk_rig.store()
    sessions = [store.open(namespace(), layout()) for _ in range(2)]
    put(sessions[0], chain(8), random_pages(8))
    assert [found_in(session, chain(8)).pages for session in sessions] == [8, 8]
    both = store.stats().bounds["memo_pages"]
    assert both.used == 16
    del sessions[1]
    assert store.stats().bounds["memo_pages"] == (8, both.limit // 2)


def test_closing_ends_every_thread_that_is_shown(two_tier_rig):
    store = two_tier_rig.store()
    store.close()
    bounds = store.stats().bounds
    assert (bounds["write_behind_threads"].used, bounds["promotion_threads"].used) == (0, 0)


def test_pages_that_do_not_get_past_a_full_cpu_tier_are_counted(two_tier_rig):
    store = two_tier_rig.store(cpu_bytes=64 << 10)
    done = put(store.open(namespace(), layout()), chain(40), random_pages(40))
    assert store.flush(10.0)
    assert 0 < done.count(False) < 40
    assert store.counters.get("write_behind_dropped_pages") == done.count(False)
