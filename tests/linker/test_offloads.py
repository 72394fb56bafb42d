"""Offers are read after their events, stored whole and once, and no more of them kept than the window has."""

import threading

import pytest
import torch

from sgkv.testing.waiting import wait_until
from sgkv.transfer.pages import DevicePages
from tests.linker.conftest import PAGE, Gate, Linked, LinkerRig, fill, kv, of_two, offer, rows, same, side
from tests.sglang import pools as make
from tests.sglang.conftest import chain
from tests.sglang.pools import slots


@pytest.fixture
def linked(linkers: LinkerRig) -> Linked:
    pool = make.mha().device
    fill(pool, 1)
    return linkers.open(pool, linker={"offload_window": 8 * PAGE})


def test_pages_are_read_after_the_events(linked: Linked, gate: Gate):
    keys = chain(4)
    assert offer(linked, keys, range(1, 5))
    assert gate.reached.wait(30)
    fill(linked.kvcache, 2)
    written = rows(linked.kvcache, range(1, 5))
    gate.opened.set()
    assert linked.finished()
    assert linked.lookup([kv(keys)]) == [1, 2, 3, 4]
    assert linked.load([kv(keys, range(8, 12))])
    assert same(rows(linked.kvcache, range(8, 12)), written)


def test_what_was_loaded_is_not_written_again(linkers: LinkerRig, linked: Linked):
    keys = chain(4)
    assert linked.offload([kv(keys, range(1, 5))])
    linked.linker.close()
    again = linkers.open(linked.kvcache)
    again.lookup([kv(keys)])
    assert again.load([kv(keys, range(8, 12))])
    assert again.offload([kv(keys, range(8, 12))])
    assert again.counted("offload_present_pages") == 4
    assert again.counted("written_bytes", "cpu") == again.counted("written_bytes", "disk") == 0


def test_only_what_is_new_is_written(linked: Linked):
    keys = chain(8)
    assert linked.offload([kv(keys[:4], range(1, 5))])
    before = linked.counted("written_bytes", "cpu")
    assert linked.offload([kv(keys, range(1, 9))])
    assert linked.counted("written_bytes", "cpu") == 2 * before


def test_a_full_window_declines_and_counts(linked: Linked, gate: Gate):
    assert offer(linked, chain(6), range(1, 7))
    assert not offer(linked, chain(3, seed=1), range(7, 10))
    assert linked.counted("offload_stalled_pages") == 3
    assert offer(linked, chain(2, seed=2), range(10, 12))
    gate.opened.set()
    assert linked.finished()
    assert linked.finished()
    assert offer(linked, chain(3, seed=1), range(7, 10))
    assert linked.finished()


def test_pages_count_until_the_engine_has_taken_note(linked: Linked):
    assert offer(linked, chain(6), range(1, 7))
    wait_until(lambda: linked.linker.num_completed_offloads() == 1, "the offload")
    assert not offer(linked, chain(3, seed=1), range(7, 10))
    assert linked.linker.pop_completed_offload()
    assert offer(linked, chain(3, seed=1), range(7, 10))


def test_an_offer_larger_than_the_window_is_taken_alone(linked: Linked, gate: Gate):
    assert offer(linked, chain(12), range(1, 13))
    assert not offer(linked, chain(1, seed=1), range(13, 14))
    gate.opened.set()
    assert linked.finished()


def test_results_come_in_the_order_of_the_offers(linkers: LinkerRig):
    """The second offer does not fit the store: pages of it are wasted, and only its result is False."""
    pool = make.mha(pages=40).device
    fill(pool, 1)
    linked = linkers.open(
        pool, names="disk", disk={"capacity": "64KiB"}, linker={"offload_window": 40 * PAGE}
    )
    offers = [chain(1), chain(30, seed=1), chain(1, seed=2)]
    assert offer(linked, offers[0], range(1, 2))
    assert offer(linked, offers[1], range(2, 32))
    wait_until(lambda: linked.linker.num_completed_offloads() == 2, "both offloads")
    assert [linked.linker.pop_completed_offload() for _ in range(2)] == [True, False]
    assert linked.counted("offload_wasted_pages") > 0


def test_a_side_pool_that_is_not_stored_leaves_no_kv_alone(linkers: LinkerRig):
    both = make.sliding_pools()
    linked = linkers.open(both, names="disk", disk={"faults": {"error": 1.0}})
    keys = chain(4)
    assert not linked.offload([kv(keys, range(1, 5)), side("swa", keys[2:], slots([3, 4], PAGE))])
    assert linked.counted("written_bytes", "disk") == 0


def test_reset_forgets_what_is_queued(linked: Linked, gate: Gate):
    keys = chain(4)
    assert offer(linked, keys, range(1, 5))
    assert offer(linked, chain(2, seed=1), range(5, 7))
    assert gate.reached.wait(30)
    waiting = threading.Thread(target=linked.linker.reset)
    waiting.start()
    gate.opened.set()
    waiting.join(30)
    assert linked.linker.num_completed_offloads() == 0
    assert linked.lookup([kv(chain(2, seed=1))]) == []
    assert linked.offload([kv(keys, range(1, 5))])


def test_after_a_reset_nothing_more_is_read(linkers: LinkerRig):
    """Nor by an offer of many batches to a slow tier: the pages hold something else by then."""
    pool, keys = make.mha(pages=50).device, chain(48)
    fill(pool, 1)
    written = rows(pool, range(1, 49))
    engine = {"exists_deadline": 0.1, "get_deadline": 30, "set_deadline": 2}
    slow = {"simulate": {"latency": 0.4}}
    window = {"offload_window": 50 * PAGE}
    linked = linkers.open(pool, names="disk", disk=slow, engine=engine, linker=window)
    assert offer(linked, keys, range(1, 49))
    wait_until(lambda: linked.counted("written_bytes", "disk") > 0, "the first batch")
    linked.linker.reset()
    fill(pool, 2)
    linked.linker.close()
    again = linkers.open(pool, names="disk")
    found = again.lookup([kv(keys)])[-1]
    assert found < 48
    assert again.load([kv(keys[:found], range(1, found + 1))])
    assert same(rows(pool, range(1, found + 1)), [layer[: found * PAGE] for layer in written])


def test_the_second_rank_of_a_replicated_pool_writes_nothing(linkers: LinkerRig):
    pool = make.mla().device
    fill(pool, 1)
    one = linkers.open(pool, names="disk", place=of_two(0))
    two = linkers.open(pool, names="disk", place=of_two(1))
    keys = chain(4)
    assert two.offload([kv(keys, range(1, 5))])
    assert two.counted("written_bytes", "disk") == 0
    assert one.offload([kv(keys, range(1, 5))])
    assert two.lookup([kv(keys)]) == [1, 2, 3, 4]
    assert two.load([kv(keys, range(8, 12))])
    assert same(rows(pool, range(8, 12)), rows(pool, range(1, 5)))


def test_ranks_of_a_pool_with_heads_share_nothing(linkers: LinkerRig):
    pool = make.mha().device
    one = linkers.open(pool, names="disk", place=of_two(0))
    two = linkers.open(pool, names="disk", place=of_two(1))
    keys = chain(4)
    assert one.offload([kv(keys, range(1, 5))])
    assert two.lookup([kv(keys)]) == []


def test_after_slots_that_only_the_device_could_see_to_be_wrong_nothing_is_stored(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
):
    """A device counts the slots that it passes over. There is none here: the count is made up."""
    before, after = chain(4), chain(4, seed=1)
    assert linked.offload([kv(before, range(1, 5))])
    monkeypatch.setattr(DevicePages, "rejected", property(lambda _pages: torch.tensor([3])))
    linked.offload([kv(after, range(1, 5))])
    assert linked.lookup([kv(after)]) == []
    assert linked.counted("internal_errors") == 1
    assert linked.lookup([kv(before)]) == [1, 2, 3, 4]
