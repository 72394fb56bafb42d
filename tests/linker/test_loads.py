"""Loads are decided before they are queued: what is missing, damaged or late is refused, never a failure."""

import time

import pytest
import torch

from sgkv.transfer.pages import DevicePages
from tests.linker.conftest import Linked, LinkerRig, blobs, fill, flip_a_bit, kv, rows, same
from tests.sglang import pools as make
from tests.sglang.conftest import chain

PAGES = range(1, 9)


@pytest.fixture
def keys() -> list[str]:
    return chain(8)


@pytest.fixture
def stored(linkers: LinkerRig, keys: list[str]) -> Linked:
    """Two chunks on disk."""
    return _stored(linkers, keys)


def _stored(linkers: LinkerRig, keys: list[str], names: str = "disk", **options: object) -> Linked:
    pool = make.mha().device
    fill(pool, 1)
    linked = linkers.open(pool, names=names, **options)
    assert linked.offload([kv(keys, PAGES)])
    return linked


def leases(linked: Linked) -> int:
    return linked.linker.store.stats().tiers["cpu"].leases


def test_a_damaged_chunk_is_refused_and_then_stored_again(
    linkers: LinkerRig, stored: Linked, keys: list[str]
):
    flip_a_bit(blobs(linkers.folder)[:1])
    assert stored.lookup([kv(keys)])[-1] == 8
    assert not stored.load([kv(keys, PAGES)])
    assert stored.linker.start_layer_wise_loading() == -1
    assert (stored.counted("miss_pages", "corrupt"), stored.counted("refused_loads")) == (1, 1)
    fill(stored.kvcache, 1)  # computed again, and offered again
    written = rows(stored.kvcache, PAGES)
    assert stored.offload([kv(keys, PAGES)])
    fill(stored.kvcache, 2)
    assert stored.lookup([kv(keys)])[-1] == 8
    assert stored.load([kv(keys, PAGES)])
    assert same(rows(stored.kvcache, PAGES), written)


def test_a_chunk_that_went_away_after_the_lookup(linkers: LinkerRig, keys: list[str]):
    """And that was not read ahead before it went."""
    stored = _stored(linkers, keys, linker={"read_ahead": 0})
    assert stored.lookup([kv(keys)])[-1] == 8
    for blob in blobs(linkers.folder):
        blob.unlink()
    assert not stored.load([kv(keys, PAGES)])


def test_a_lookup_waits_no_longer_than_its_deadline(linkers: LinkerRig, keys: list[str]):
    slow = {"simulate": {"latency": 1.0}}
    engine = {"exists_deadline": 0.2, "get_deadline": 30, "set_deadline": 30}
    linked = linkers.open(make.mha().device, names="disk", disk=slow, engine=engine)
    began = time.monotonic()
    assert linked.lookup([kv(keys)]) == []
    assert time.monotonic() - began < 0.9
    assert linked.counted("lookup_pages", "timeout") == 8


def test_a_slow_tier_is_waited_for_no_longer_than_the_deadline(linkers: LinkerRig, keys: list[str]):
    slow = {"simulate": {"latency": 1.0}}
    engine = {"exists_deadline": 30, "get_deadline": 0.2, "set_deadline": 30}
    linked = _stored(linkers, keys, disk=slow, engine=engine)
    linked.lookup([kv(keys)])
    began = time.monotonic()
    assert not linked.load([kv(keys, PAGES)])
    assert time.monotonic() - began < 0.9
    assert linked.counted("miss_pages", "timeout") > 0


def test_slots_that_do_not_fit_the_pages_are_refused(stored: Linked, keys: list[str]):
    stored.lookup([kv(keys)])
    assert not stored.load([kv(keys, range(1, 8))])
    assert stored.counted("internal_errors") == 1


def test_cancelling_gives_everything_back(linkers: LinkerRig, keys: list[str]):
    linked = _stored(linkers, keys, names="cpu")
    assert linked.linker.load("r", [kv(keys, PAGES)])
    assert leases(linked) == 8
    assert linked.linker.cancel_queued_load("r")
    assert leases(linked) == 0
    assert not linked.linker.cancel_queued_load("r")
    assert linked.linker.start_layer_wise_loading() == -1


def test_a_started_load_cannot_be_cancelled_and_gives_its_pages_back(linkers: LinkerRig, keys: list[str]):
    linked = _stored(linkers, keys, names="cpu")
    assert linked.linker.load("r", [kv(keys, PAGES)])
    index = linked.linker.start_layer_wise_loading()
    assert not linked.linker.cancel_queued_load("r")
    assert linked.linker.finish_layer_wise_loading(index)
    linked.linker.reset()
    assert leases(linked) == 0


def test_several_requests_are_one_batch(linkers: LinkerRig):
    pool = make.mha().device
    fill(pool, 1)
    linked = linkers.open(pool)
    first, second = chain(3), chain(4, seed=1)
    written = rows(pool, range(1, 8))
    assert linked.offload([kv(first, [1, 2, 3])])
    assert linked.offload([kv(second, [4, 5, 6, 7])])
    fill(pool, 2)
    assert linked.linker.load("one", [kv(first, [10, 11, 12])])
    assert linked.load([kv(second, [1, 2, 3, 4])], rid="two")
    assert same(rows(pool, [10, 11, 12, 1, 2, 3, 4]), written)


def test_a_copy_that_fails_is_told_after_the_forward(
    linkers: LinkerRig, keys: list[str], monkeypatch: pytest.MonkeyPatch
):
    """What a device would refuse cannot be made to happen on a CPU: the copy of layer 1 raises instead."""
    linked = _stored(linkers, keys, names="cpu")

    def unpack(self: DevicePages, layer: int, _slots: torch.Tensor, _buffer: torch.Tensor) -> None:
        if layer == 1:
            raise RuntimeError("a device error")

    monkeypatch.setattr(DevicePages, "unpack_layer", unpack)
    assert linked.linker.load("r", [kv(keys, PAGES)])
    index = linked.linker.start_layer_wise_loading()
    linked.linker.layer_done_counter.set_consumer(index)
    for layer in range(make.LAYERS):
        linked.linker.layer_done_counter.wait_until(layer)
    assert not linked.linker.finish_layer_wise_loading(index)
    monkeypatch.undo()
    assert linked.load([kv(keys, PAGES)], rid="next")
    linked.linker.reset()
    assert leases(linked) == 0


def test_without_layers_everything_is_there_at_once(linkers: LinkerRig, keys: list[str]):
    linked = _stored(linkers, keys, names="cpu", linker={"layer_wise": False})
    written = rows(linked.kvcache, PAGES)
    fill(linked.kvcache, 2)
    assert linked.linker.load("r", [kv(keys, PAGES)])
    index = linked.linker.start_layer_wise_loading()
    assert same(rows(linked.kvcache, PAGES), written)
    assert linked.linker.finish_layer_wise_loading(index)
