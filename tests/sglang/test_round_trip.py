"""What is stored from a host pool comes back into other slots, byte for byte, over a restart."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.pools import Pools, blank, fill, page_bytes, slots

Maker = Callable[..., Pools]

FLAT = {  # pools of which SGLang can read flat pages
    **{f"mha-{layout}": partial(make.mha, layout) for layout in make.MHA_LAYOUTS},
    **{f"mla-{layout}": partial(make.mla, layout) for layout in make.MLA_LAYOUTS},
}
ALL = {
    **FLAT,
    **{f"asymmetric-{layout}": partial(make.asymmetric, layout) for layout in make.ASYMMETRIC_LAYOUTS},
}
SIZES = {1: 35, 16: 11, 64: 9, 256: 3}
"""Page size, and how many pages: two chunks and a tail where a chunk has several pages."""
DTYPES = [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def by_name(makers: dict[str, Maker]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("maker", makers.values(), ids=makers.keys())


def chunk_tokens(page_size: int) -> int:
    return min(256, max(16, 4 * page_size))


def restart(rig: Rig, backend: SgkvHiCache, **options: object) -> SgkvHiCache:
    """Close, and open on the same folder with pools that hold nothing."""
    kv = Pools(None, backend.mem_pool_host)
    side = {str(name): Pools(None, pool) for name, pool in backend.registered_pools.items()}
    backend.close()
    for pools in side.values():
        blank(pools)
    return rig.backend(kv, side=side, **options)


def expected(pools: Pools, pages: Sequence[int]) -> list[bytes]:
    return [page_bytes(pools.host, page) for page in pages]


def check_v1(rig: Rig, pools: Pools, count: int) -> None:
    """Set the first `count` pages, restart, get them into the last `count` in reverse order."""
    size = pools.host.page_size
    options = {"chunk_tokens": chunk_tokens(size)}
    keys = chain(count, size)
    fill(pools, seed=1)
    before = expected(pools, range(count))
    backend = rig.backend(pools, **options)
    assert write(backend, pools, keys, range(count)) == [True] * count
    backend = restart(rig, backend, **options)
    assert backend.batch_exists(keys, after()) == count
    into = range(2 * count - 1, count - 1, -1)
    assert read(backend, pools, keys, into) == [True] * count
    assert expected(pools, into) == before


@by_name(ALL)
@pytest.mark.parametrize("page_size", SIZES)
def test_every_layout_and_page_size(tiered_rig: Rig, maker: Maker, page_size: int) -> None:
    count = SIZES[page_size]
    check_v1(tiered_rig, maker(page_size, pages=2 * count), count)


@by_name(ALL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_layout_and_dtype(disk_rig: Rig, maker: Maker, dtype: torch.dtype) -> None:
    pools = maker(16, pages=12, dtype=dtype)
    assert pools.host.dtype == (torch.bfloat16 if dtype is torch.bfloat16 else torch.uint8)
    check_v1(disk_rig, pools, 6)


def write_flat(backend: SgkvHiCache, pools: Pools, keys: Sequence[str], pages: Sequence[int]) -> bool:
    """As SGLang's `_generic_page_set`."""
    size = pools.host.page_size
    return backend.batch_set(list(keys), [pools.host.get_data_page(page * size) for page in pages])


def read_flat(backend: SgkvHiCache, pools: Pools, keys: Sequence[str], pages: Sequence[int]) -> None:
    """As SGLang's `_generic_page_get`, with every page present."""
    into = [pools.host.get_dummy_flat_data_page() for _ in keys]
    for page, data in zip(pages, backend.batch_get(list(keys), into), strict=True):
        assert data is not None
        pools.host.set_from_flat_data_page(page * pools.host.page_size, data)


@by_name(FLAT)
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_flat_pages_and_zero_copy_read_each_other(tiered_rig: Rig, maker: Maker, page_size: int) -> None:
    count = 5
    pools = maker(page_size, pages=3 * count)
    zero_copy, flat = chain(count, page_size, seed=1), chain(count, page_size, seed=2)
    fill(pools, seed=3)
    before = expected(pools, range(count))
    backend = tiered_rig.backend(pools)
    assert write(backend, pools, zero_copy, range(count)) == [True] * count
    assert write_flat(backend, pools, flat, range(count))
    backend = restart(tiered_rig, backend)
    for keys in (zero_copy, flat):
        read(backend, pools, keys, range(count, 2 * count))
        read_flat(backend, pools, keys, range(2 * count, 3 * count))
        assert expected(pools, range(count, 2 * count)) == before
        assert expected(pools, range(2 * count, 3 * count)) == before


def test_one_flat_page_alone(disk_rig: Rig) -> None:
    pools = make.mha("page_first")
    backend = disk_rig.backend(pools)
    (key,) = chain(1)
    fill(pools, seed=1)
    page = pools.host.get_data_page(0)
    assert backend.set(key, page)
    assert backend.exists(key)
    into = pools.host.get_dummy_flat_data_page()
    assert backend.get(key, into) is into
    assert into.view(torch.uint8).equal(page.view(torch.uint8))


@pytest.mark.parametrize("layout", make.MHA_LAYOUTS)
def test_a_window_pool_beside_the_full_one(tiered_rig: Rig, layout: str) -> None:
    full, swa = make.sliding_window(layout)
    check_side_pool(tiered_rig, full, "swa", swa)


@pytest.mark.parametrize("layout", make.MAMBA_LAYOUTS)
def test_recurrent_state_beside_attention(tiered_rig: Rig, layout: str) -> None:
    check_side_pool(tiered_rig, make.mha(layout), "mamba", make.mamba(layout))


@pytest.mark.parametrize("layout", make.INDEXER_LAYOUTS)
def test_index_keys_beside_latent_kv(tiered_rig: Rig, layout: str) -> None:
    """Sparse attention: every page of the KV needs its page of index keys, at the same slots."""
    kv, index = make.indexer(layout, pages=8)
    keys = chain(4, 64)
    for seed, pools in enumerate((kv, index)):
        fill(pools, seed)
    before = expected(kv, range(4)), expected(index, range(4))
    backend = tiered_rig.backend(kv, side={"indexer": index})
    stored = backend.batch_set_v2([transfer("indexer", keys, slots(range(4), 64))], after())
    assert stored == {"indexer": [True] * 4}
    assert write(backend, kv, keys, range(4)) == [True] * 4
    backend = restart(tiered_rig, backend)
    assert backend.batch_exists_v2(keys, [transfer("indexer", keys)], after()).kv_hit_pages == 4
    assert read(backend, kv, keys, range(4, 8)) == [True] * 4
    got = backend.batch_get_v2([transfer("indexer", keys, slots(range(4, 8), 64))], after())
    assert got == {"indexer": [True] * 4}
    assert (expected(kv, range(4, 8)), expected(index, range(4, 8))) == before


def check_side_pool(rig: Rig, kv: Pools, name: str, side: Pools) -> None:
    """Sets of side pools come before those of the KV, gets after; keys are the trailing pages."""
    keys = chain(6)
    tail = keys[4:]
    size = side.host.page_size
    for seed, pools in enumerate((kv, side)):
        fill(pools, seed)
    kv_before, side_before = expected(kv, range(6)), expected(side, [2, 3])
    backend = rig.backend(kv, side={name: side})
    stored = backend.batch_set_v2(
        [transfer(name, tail, slots([2, 3], size), trailing=True)], after(*keys[:4])
    )
    assert stored == {name: [True, True]}
    assert write(backend, kv, keys, range(6)) == [True] * 6
    backend = restart(rig, backend)
    assert backend.batch_exists_v2(keys, [transfer(name, tail, trailing=True)], after()).kv_hit_pages == 6
    assert read(backend, kv, keys, range(8, 14)) == [True] * 6
    got = backend.batch_get_v2([transfer(name, tail, slots([9, 7], size), trailing=True)], after(*keys[:4]))
    assert got == {name: [True, True]}
    assert (expected(kv, range(8, 14)), expected(side, [9, 7])) == (kv_before, side_before)
