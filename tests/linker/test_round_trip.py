"""Pages that were offloaded come back bit for bit, into whatever slots, from whichever tier."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgkv.sglang.linking.pools import UnservedPoolError
from tests.linker.conftest import PAGE, LinkerRig, fill, kv, rows, same, side
from tests.sglang import pools as make
from tests.sglang.conftest import chain
from tests.sglang.pools import slots

POOLS = {
    "mha": make.mha,
    "bfloat16": lambda: make.mha(dtype=torch.bfloat16),
    "asymmetric": make.asymmetric,
    "mla": make.mla,
}


@pytest.fixture(params=POOLS)
def kvcache(request: pytest.FixtureRequest) -> Any:
    pool = POOLS[request.param]().device
    fill(pool, 1)
    return pool


@pytest.mark.parametrize("names", ["cpu", "cpu+disk", "disk"])
def test_into_other_slots(linkers: LinkerRig, kvcache: Any, names: str):
    linked, keys = linkers.open(kvcache, names=names), chain(6)
    written = rows(kvcache, range(1, 7))
    assert linked.offload([kv(keys, range(1, 7))])
    assert linked.lookup([kv(keys)]) == [1, 2, 3, 4, 5, 6]
    untouched = rows(kvcache, [7, 8, 9])
    assert linked.load([kv(keys, [15, 10, 12, 11, 14, 13])])
    assert same(rows(kvcache, [15, 10, 12, 11, 14, 13]), written)
    assert same(rows(kvcache, [7, 8, 9]), untouched)


def test_after_a_restart(linkers: LinkerRig, kvcache: Any):
    keys, written = chain(6), rows(kvcache, range(1, 7))
    first = linkers.open(kvcache)
    assert first.offload([kv(keys, range(1, 7))])
    first.linker.close()
    again = linkers.open(kvcache)
    fill(kvcache, 2)
    assert again.lookup([kv(keys)]) == [1, 2, 3, 4, 5, 6]
    assert again.load([kv(keys, range(1, 7))])
    assert same(rows(kvcache, range(1, 7)), written)
    assert (again.counted("hit_pages", "cpu"), again.counted("hit_pages", "disk")) == (0, 6)


def test_part_from_memory_and_part_from_disk(linkers: LinkerRig, kvcache: Any):
    keys, written = chain(8), rows(kvcache, range(1, 9))
    linked = linkers.open(kvcache)
    assert linked.offload([kv(keys, range(1, 9))])
    assert linked.linker.store.flush(30)
    arena = linked.linker.store.tiers[0].backend
    held = [info.key for info in arena.scan() if info.key.rpartition("/")[2] in (keys[1], keys[5], keys[6])]
    assert arena.delete(held) == [True] * 3
    fill(kvcache, 2)
    assert linked.lookup([kv(keys)])[-1] == 8
    assert linked.load([kv(keys, range(1, 9))])
    assert same(rows(kvcache, range(1, 9)), written)
    assert (linked.counted("hit_pages", "cpu"), linked.counted("hit_pages", "disk")) == (5, 3)


@given(pages=st.integers(1, 14), cut=st.integers(0, 13), held=st.integers(0, 13), staging=st.integers(1, 3))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nodes_and_tails_anywhere(linkers: LinkerRig, pages: int, cut: int, held: int, staging: int):
    """A sequence arrives in two nodes and is read without a part that the device still has."""
    cut, held = min(cut, pages), min(held, pages - 1)
    pool = make.mha().device
    fill(pool, 1)
    linked = linkers.open(
        pool, names="disk", linker={"staging_chunks": staging}, tenant=f"{pages} {cut} {held}"
    )
    keys, written = chain(pages), rows(pool, range(1 + held, pages + 1))
    for part in (range(cut), range(cut, pages)):
        if part:
            offered = [kv(keys[part.start : part.stop], [page + 1 for page in part])]
            assert linked.offload(offered, before=keys[: part.start])
    fill(pool, 2)
    tail = keys[held:]
    assert linked.lookup([kv(tail)], before=keys[:held])[-1] == len(tail)
    assert linked.load([kv(tail, range(1, len(tail) + 1))])
    assert same(rows(pool, range(1, len(tail) + 1)), written)
    linked.linker.close()


def test_without_positions_pages_are_stored_one_by_one(linkers: LinkerRig):
    pool = make.mha().device
    fill(pool, 1)
    linked, keys = linkers.open(pool, names="disk"), chain(4)
    written = rows(pool, range(1, 5))
    assert linked.offload([kv(keys, range(1, 5))], before=None)
    assert linked.linker.store.stats().tiers["disk"].blobs == 4
    assert linked.lookup([kv(keys)], before=None) == [1, 2, 3, 4]
    assert linked.load([kv(keys, range(8, 12))])
    assert same(rows(pool, range(8, 12)), written)


def test_windows_are_restorable_where_they_end(linkers: LinkerRig):
    """The device kept the window's pages of two nodes only: prefixes can end there and nowhere between."""
    both = make.sliding_pools()
    full, window = both.full_kv_pool, both.swa_kv_pool
    fill(full, 1)
    fill(window, 2)
    linked, keys = linkers.open(both), chain(8)
    assert linked.offload([kv(keys, range(1, 9)), side("swa", keys[2:4], slots([3, 4], PAGE))])
    assert linked.offload([kv(keys, range(1, 9)), side("swa", keys[6:8], slots([7, 8], PAGE))])
    wanted = [rows(full, range(1, 9)), rows(window, [7, 8])]
    assert linked.lookup([kv(keys), side("swa", keys[6:8])]) == [4, 8]
    fill(full, 3)
    fill(window, 4)
    assert linked.load([kv(keys, range(1, 9)), side("swa", keys[6:8], slots([2, 3], PAGE))])
    assert same(rows(full, range(1, 9)), wanted[0])
    assert same(rows(window, [2, 3]), wanted[1])


def recurrent(seed: int) -> SimpleNamespace:
    """What SGLang's request pool shows of recurrent state: two dtypes, layers 0 and 2 of the model."""
    generator = torch.Generator().manual_seed(seed)
    temporal = torch.randn(2, 8, 4, 8, 6, generator=generator)
    conv = torch.randn(2, 8, 32, 3, generator=generator).to(torch.bfloat16)
    cache = SimpleNamespace(temporal=temporal, conv=[conv])
    off = SimpleNamespace(enabled=False)
    registered: list[Any] = []
    return SimpleNamespace(
        mamba_pool=SimpleNamespace(mamba_cache=cache), mamba_map={0: 0, 2: 1}, mamba_ckpt_pool=None,
        short_conv_pool=off, ngram_pool=off, register_layer_transfer_counter=registered.append,
        registered=registered,
    )  # fmt: skip


def test_recurrent_state_goes_with_the_last_page(linkers: LinkerRig):
    pool, requests = make.mha().device, recurrent(1)
    fill(pool, 1)
    linked, keys = linkers.open(pool, requests=requests), chain(5)
    assert requests.registered == [linked.linker.layer_done_counter]
    cache = requests.mamba_pool.mamba_cache
    state = [cache.temporal[:, 3].clone(), cache.conv[0][:, 3].clone()]
    assert linked.offload([kv(keys, range(1, 6)), side("mamba", keys[-1:], torch.tensor([3]))])
    assert linked.lookup([kv(keys), side("mamba", keys[-1:])]) == [5]
    assert linked.load([kv(keys, range(8, 13)), side("mamba", keys[-1:], torch.tensor([6]))])
    assert torch.equal(cache.temporal[:, 6], state[0])
    assert torch.equal(cache.conv[0][:, 6], state[1])


def test_state_that_cannot_be_written_in_place_is_refused(linkers: LinkerRig):
    requests = recurrent(1)
    requests.mamba_pool.mamba_cache.temporal = torch.zeros(2, 8, 4, 8, 6).transpose(3, 4)
    with pytest.raises(UnservedPoolError, match="SimpleNamespace"):
        linkers.open(make.mha().device, requests=requests)


def test_a_pool_of_another_kind_is_refused_at_once(linkers: LinkerRig):
    with pytest.raises(UnservedPoolError, match=r"DSATokenToKVPool.*--hicache-storage-backend sgkv"):
        linkers.open(make.indexer()[1].device)
