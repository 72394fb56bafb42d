"""Weights that change: nothing is read or written meanwhile, and what was before is not found after."""

import pytest

from sgkv.sglang.lifecycle import weights_change
from sgkv.testing.waiting import wait_until
from tests.linker.conftest import PAGE, Gate, Linked, LinkerRig, fill, kv, offer
from tests.sglang import pools as make
from tests.sglang.conftest import chain

PAGES = range(1, 5)


@pytest.fixture
def linked(linkers: LinkerRig) -> Linked:
    pool = make.mha().device
    fill(pool, 1)
    return linkers.open(pool, linker={"offload_window": 8 * PAGE})


def test_nothing_is_found_taken_or_loaded_during_an_update(linked: Linked):
    keys = chain(4)
    assert linked.offload([kv(keys, PAGES)])
    with weights_change() as change:
        assert linked.lookup([kv(keys)]) == []
        assert not linked.linker.load("r", [kv(keys, PAGES)])
        assert not linked.linker.offload([kv(chain(2, seed=1), range(8, 10))])
        change.succeeded = change.flushed = True
    assert linked.counted("lookup_pages", "suspended") == 4


def test_new_weights_find_nothing_of_the_old(linked: Linked):
    keys = chain(4)
    assert linked.offload([kv(keys, PAGES)])
    with weights_change() as change:
        change.succeeded = change.flushed = True
    assert linked.lookup([kv(keys)]) == []
    assert linked.offload([kv(keys, PAGES)])
    assert linked.lookup([kv(keys)], rid="another") == [1, 2, 3, 4]


def test_what_was_queued_before_is_dropped(linked: Linked, gate: Gate):
    assert offer(linked, chain(1, seed=1), range(8, 9))
    assert gate.reached.wait(30)
    assert offer(linked, chain(4), PAGES)
    with weights_change() as change:
        gate.opened.set()
        assert linked.finished()  # it was under way, and belongs to the old weights' namespace
        assert not linked.finished()
        change.succeeded = change.flushed = True
    assert linked.lookup([kv(chain(4))]) == []


def test_a_failed_update_leaves_it_off_until_a_flush(linked: Linked):
    keys = chain(4)
    with weights_change():
        pass
    assert not linked.linker.offload([kv(keys, PAGES)])
    assert linked.lookup([kv(keys)]) == []


def test_what_was_read_ahead_for_old_weights_is_not_loaded(linkers: LinkerRig):
    pool = make.mha().device
    fill(pool, 1)
    linked, keys = linkers.open(pool, names="disk"), chain(4)
    assert linked.offload([kv(keys, PAGES)])
    assert linked.lookup([kv(keys)])[-1] == 4
    wait_until(lambda: not linked.linker.not_yet("r"), "the pages to be read")
    with weights_change() as change:
        change.succeeded = change.flushed = True
    assert linked.lookup([kv(keys)]) == []
    assert linked.linker.bounds()["read_ahead_bytes"].used == 0
    assert not linked.linker.load("r", [kv(keys, PAGES)])
