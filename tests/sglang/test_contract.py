"""What SGLang relies on whatever happens: nothing is raised, and every answer has its shape.

0.5.23 indexes the lists it gets, asks from its scheduler thread without protection, and treats a
False in a set as the end of a backup.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.pools import Pools, slots

KEYS = chain(3)


@pytest.fixture
def backend(disk_rig: Rig) -> SgkvHiCache:
    return disk_rig.backend(make.mha(), side={"mamba": make.mamba()})


BAD_INDICES = {
    "none": None,
    "empty": torch.empty(0, dtype=torch.int64),
    "a page short": slots(range(2), 16),
    "a page long": slots(range(4), 16),
    "half a page": torch.arange(3 * 16 - 8),
    "outside the pool": slots(range(10_000, 10_003), 16),
    "negative": slots(range(3), 16) - 1_000_000,
    "floats": slots(range(3), 16).float(),
    "not a tensor": "indices",
}


@pytest.mark.parametrize("indices", BAD_INDICES.values(), ids=BAD_INDICES.keys())
def test_indices_that_do_not_fit_the_keys(backend: SgkvHiCache, indices: Any) -> None:
    none = [False] * 3
    assert backend.batch_set_v1(KEYS, indices, after()) == none
    assert backend.batch_get_v1(KEYS, indices, after()) == none
    transfers = [PoolTransfer(PoolName.KV, host_indices=indices, keys=KEYS)]
    assert backend.batch_set_v2(transfers, after()) == {"kv": none}
    assert backend.batch_get_v2(transfers, after()) == {"kv": none}


def test_nothing_asked_is_nothing_answered(backend: SgkvHiCache) -> None:
    empty = torch.empty(0, dtype=torch.int64)
    assert backend.batch_exists([], after()) == 0
    assert backend.batch_exists_v2([], [], after()) == PoolTransferResult(0, {}, [])
    assert backend.batch_get_v1([], empty) == backend.batch_set_v1([], empty) == []
    assert backend.batch_get_v2([]) == backend.batch_set_v2([]) == {}
    assert backend.batch_get([], []) == []
    assert backend.batch_get_v2([PoolTransfer(PoolName.MAMBA)]) == {"mamba": []}


def test_before_any_pool_is_registered_everything_misses(disk_rig: Rig) -> None:
    backend = disk_rig.bare()
    at = slots(range(3), 16)
    assert backend.batch_exists(KEYS) == 0
    assert backend.batch_exists_v2(KEYS, [transfer("swa", KEYS)]).kv_hit_pages == 0
    assert backend.batch_set_v1(KEYS, at) == backend.batch_get_v1(KEYS, at) == [False] * 3
    assert backend.batch_set_v2([transfer("swa", KEYS, at)]) == {"swa": [False] * 3}
    assert backend.batch_get(KEYS, [torch.zeros(4)] * 3) == [None] * 3
    assert not backend.batch_set(KEYS, [torch.zeros(4)] * 3)


FLAT_TARGETS = {
    "none": None,
    "too few": [torch.zeros(6144)],
    "too small": [torch.zeros(6143)] * 3,
    "not tensors": [None] * 3,
    "transposed": [torch.zeros(64, 96).T] * 3,
}


@pytest.mark.parametrize("targets", FLAT_TARGETS.values(), ids=FLAT_TARGETS.keys())
def test_flat_pages_that_do_not_fit(backend: SgkvHiCache, targets: Any) -> None:
    """A tensor that is not contiguous cannot be filled in place, so it is not a hit either."""
    kv = Pools(None, backend.mem_pool_host)
    write(backend, kv, KEYS, range(3))
    assert backend.batch_get(KEYS, targets) == [None] * 3
    if targets is None or targets[0] is None or targets[0].is_contiguous():
        assert not backend.batch_set(chain(3, seed=1), targets)


texts = st.one_of(st.sampled_from(KEYS), st.text(max_size=70), st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
key_lists = st.lists(texts, max_size=5)
indices = st.one_of(
    st.none(),
    st.integers(0, 5).map(lambda pages: slots(range(pages), 16)),
    st.lists(st.integers(-(2**62), 2**62), max_size=48).map(
        lambda values: torch.tensor(values, dtype=torch.int64)
    ),
    st.sampled_from([torch.zeros(3, 16), torch.tensor(5), torch.zeros(48, dtype=torch.bool), [1, 2], "x", 7]),
)
infos = st.one_of(
    st.none(),
    st.builds(
        HiCacheStorageExtraInfo, prefix_keys=st.one_of(st.none(), key_lists, st.just([1, None]), st.just(7))
    ),
    st.just(object()),
)
names = st.one_of(st.sampled_from(PoolName), st.text(max_size=10))
transfers = st.lists(
    st.builds(
        PoolTransfer,
        name=names,
        host_indices=indices,
        keys=st.one_of(st.none(), key_lists),
        hit_policy=st.sampled_from(PoolHitPolicy),
    ),
    max_size=3,
)
flat = st.one_of(
    st.none(), st.lists(st.sampled_from([None, torch.zeros(6144), torch.zeros(5), "x"]), max_size=5)
)


def shaped(answers: Any, keys: Sequence[str]) -> bool:
    return isinstance(answers, list) and len(answers) == len(keys) and set(answers) <= {True, False}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=key_lists, at=indices, info=infos, several=transfers, tensors=flat)
def test_any_argument_gets_an_answer_of_the_right_shape(
    backend: SgkvHiCache, keys: list[str], at: Any, info: Any, several: list[PoolTransfer], tensors: Any
) -> None:
    lengths = {transfer.name: len(transfer.keys or []) for transfer in several}
    assert shaped(backend.batch_set_v1(keys, at, info), keys)
    assert shaped(backend.batch_get_v1(keys, at, info), keys)
    assert 0 <= backend.batch_exists(keys, info) <= len(keys)
    found = backend.batch_exists_v2(keys, several, info)
    assert 0 <= found.kv_hit_pages <= len(keys)
    for answer in (backend.batch_set_v2(several, info), backend.batch_get_v2(several, info)):
        assert {name: len(results) for name, results in answer.items()} == lengths
    assert isinstance(backend.batch_set(keys, tensors), bool)
    assert len(backend.batch_get(keys, tensors)) == len(keys)


nonsense = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.lists(st.none(), max_size=2), st.just(object())
)
CALLS = [
    "register_mem_pool_host", "batch_exists", "exists", "batch_exists_v2", "batch_get_v1", "batch_set_v1",
    "batch_get_v2", "batch_set_v2", "batch_get", "batch_set", "get", "set",
]  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=st.sampled_from(CALLS), arguments=st.lists(nonsense, max_size=3))
def test_not_even_nonsense_raises(backend: SgkvHiCache, call: str, arguments: list[Any]) -> None:
    """A later SGLang may change its signatures; its threads must live on."""
    getattr(backend, call)(*arguments)


def test_a_list_of_pages_with_one_bad_key_keeps_its_length(rig: Rig) -> None:
    kv = make.mha()
    backend = rig.backend(kv)
    keys = [KEYS[0], "../../escape", KEYS[2]]
    assert len(write(backend, kv, keys, range(3))) == 3
    assert backend.store.flush(30)
    assert len(read(backend, kv, keys, range(3, 6))) == 3
    assert not list(rig.folder.parent.rglob("escape*"))
