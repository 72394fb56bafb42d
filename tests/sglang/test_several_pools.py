"""Models of several pools: which prefixes can be restored, against a model and SGLang's own backend."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheFile,
    HiCacheStorageConfig,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from sglang.srt.mem_cache.memory_pool_host import LogicalHostPool

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, rank, transfer
from tests.sglang.pools import Pools, blank, fill, page_bytes, slots

PAGES = 10
TRAILING = {"swa", "mamba"}


@dataclass(frozen=True, repr=False)
class Two:
    """Our backend and SGLang's, over the same host pools."""

    ours: SgkvHiCache
    theirs: HiCacheFile
    pools: dict[str, Pools]
    seeds: Iterator[int] = field(default_factory=lambda: count(1))
    """Every example of a property is another sequence in the same store."""

    def put(self, name: str, keys: Sequence[str], present: Sequence[bool], *, positions: bool) -> None:
        """Store those pages of `keys` that are `present`, run by run, in both."""
        for start, stop in _runs(present):
            at = slots(range(start, stop), self.pools[name].host.page_size)
            run = transfer(name, keys[start:stop], at)
            info = after(*keys[:start]) if positions else None
            (stored,) = self.ours.batch_set_v2([run], info).values()
            assert stored == [True] * (stop - start)
            assert all(self.theirs.batch_set_v2([run])[run.name])


def _runs(present: Sequence[bool]) -> list[tuple[int, int]]:
    """(first, stop) of every run of True."""
    groups = groupby(range(len(present)), key=present.__getitem__)
    runs = [list(pages) for flag, pages in groups if flag]
    return [(run[0], run[-1] + 1) for run in runs]


@pytest.fixture
def two(disk_rig: Rig, tmp_path: Path) -> Two:
    """A window, a recurrent state and a draft model beside the full attention."""
    full, swa = make.sliding_window(pages=PAGES)
    pools = {"kv": full, "swa": swa, "mamba": make.mamba(), "draft": make.mha(layers=1, pages=PAGES)}
    side = {name: pool for name, pool in pools.items() if name != "kv"}
    theirs = HiCacheFile(HiCacheStorageConfig(**rank()), str(tmp_path / "theirs"))
    for name, pool in pools.items():
        theirs.register_mem_host_pool_v2(pool.host, PoolName(name))
    return Two(disk_rig.backend(full, side=side), theirs, pools)


def restorable(name: str, present: Sequence[bool], window: int, longest: int) -> set[int]:
    """The definition, as SGLang's `PoolHitPolicy` documents it, length by length."""
    return {
        length
        for length in range(1, longest + 1)
        if all(present[max(0, length - window) if name in TRAILING else 0 : length])
    }


any_pages = st.lists(st.booleans(), min_size=PAGES, max_size=PAGES)
leading_pages = st.integers(0, PAGES).map(lambda first: [page < first for page in range(PAGES)])
presence = st.one_of(leading_pages, any_pages)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kv=presence,
    side=st.dictionaries(st.sampled_from(["swa", "mamba", "draft"]), presence, max_size=3),
    window=st.integers(1, 4),
    positions=st.booleans(),
)
def test_restorable_prefixes(
    two: Two, kv: list[bool], side: dict[str, list[bool]], window: int, positions: bool
) -> None:
    keys = chain(PAGES, seed=next(two.seeds))
    for name, present in {"kv": kv, **side}.items():
        two.put(name, keys, present, positions=positions)
    asked = [
        transfer(name, keys[-window:] if name in TRAILING else keys, trailing=name in TRAILING)
        for name in side
    ]
    ours = two.ours.batch_exists_v2(keys, asked, after())
    theirs = two.theirs.batch_exists_v2(keys, asked, after())

    lead = [*kv, False].index(False)
    each = {name: restorable(name, present, window, lead) for name, present in side.items()}
    common = set(range(1, lead + 1)).intersection(*each.values())
    assert ours.restorable_prefix_pages == theirs.restorable_prefix_pages == sorted(common)
    assert ours.kv_hit_pages == theirs.kv_hit_pages == max(common, default=0)
    longest = {"kv": lead, **{name: max(lengths, default=0) for name, lengths in each.items()}}
    assert ours.extra_pool_hit_pages == {name: pages for name, pages in longest.items() if pages}
    # SGLang's backend stops asking once nothing can be restored.
    assert theirs.extra_pool_hit_pages.items() <= ours.extra_pool_hit_pages.items()


def test_what_is_restorable_need_not_be_a_prefix_of_lengths(two: Two) -> None:
    """State is stored where nodes end: after pages 4 and 8."""
    keys = chain(PAGES)
    two.put("kv", keys, [True] * PAGES, positions=True)
    two.put("mamba", keys, [page in (3, 7) for page in range(PAGES)], positions=True)
    result = two.ours.batch_exists_v2(keys, [transfer("mamba", keys[:1], trailing=True)], after())
    assert (result.kv_hit_pages, result.restorable_prefix_pages) == (8, [4, 8])


def test_without_side_pools_it_is_the_plain_lookup(two: Two) -> None:
    keys = chain(6)
    two.put("kv", keys, [True] * 6, positions=True)
    for asked in (None, []):
        result = two.ours.batch_exists_v2(keys, asked, after())
        assert (result.kv_hit_pages, result.extra_pool_hit_pages) == (6, {"kv": 6})


def test_block_groups_never_gate_the_hit(two: Two) -> None:
    """We have no verdict on a second form of the same pages; a pool not reported carries none."""
    keys = chain(6)
    two.put("kv", keys, [True] * 6, positions=True)
    groups = PoolTransfer(PoolName.DRAFT, keys=keys[:2], hit_policy=PoolHitPolicy.BLOCK_GROUPS, block_pages=2)
    result = two.ours.batch_exists_v2(keys, [groups], after())
    assert (result.kv_hit_pages, result.extra_pool_hit_pages) == (6, {"kv": 6})


def test_each_pool_answers_for_itself(two: Two) -> None:
    """One call, several pools: a missing page of one leaves the others' bytes alone."""
    keys = chain(4)
    for seed, pool in enumerate(two.pools.values()):
        fill(pool, seed)
    two.put("swa", keys, [True, False, True, True], positions=True)
    two.put("mamba", keys, [False, False, False, True], positions=True)
    swa, mamba = two.pools["swa"], two.pools["mamba"]
    before = page_bytes(swa.host, 2), page_bytes(mamba.host, 3)
    blank(mamba)
    got = two.ours.batch_get_v2(
        [transfer("swa", keys, slots([6, 7, 8, 9], 16)), transfer("mamba", keys[3:], slots([11], 1))],
        after(),
    )
    assert got == {"swa": [True, False, True, True], "mamba": [True]}
    assert (page_bytes(swa.host, 8), page_bytes(mamba.host, 11)) == before


def test_a_logical_anchor_has_no_bytes_of_its_own(disk_rig: Rig) -> None:
    """DeepSeek-V4: the anchor hands out indices; the bytes travel in other pools, which decide."""
    anchor = LogicalHostPool(16 * 16, 16)
    compressed = make.mla()
    backend = disk_rig.backend(Pools(None, anchor), side={"deepseek_v4_c4": compressed})
    keys, at = chain(6), slots(range(6), 16)
    name = "deepseek_v4_c4"
    fill(compressed, seed=1)
    assert backend.batch_set_v2([transfer(name, keys[:5], at[: 5 * 16])], after()) == {name: [True] * 5}
    assert backend.batch_set_v1(keys, at, after()) == [True] * 6
    result = backend.batch_exists_v2(keys, [transfer(name, keys)], after())
    assert (result.kv_hit_pages, result.restorable_prefix_pages) == (5, [1, 2, 3, 4, 5])
    assert backend.batch_get_v1(keys, at, after()) == [True] * 6
    assert backend.batch_get_v2([transfer(name, keys, slots(range(6, 12), 16))], after()) == {
        name: [True] * 5 + [False]
    }
    assert page_bytes(compressed.host, 6) == page_bytes(compressed.host, 0)
    assert backend.batch_exists_v2(keys, [], after()).kv_hit_pages == 0, "no pool, no bytes"


def test_a_side_pool_that_comes_later(disk_rig: Rig) -> None:
    """Draft pools register while the server runs, without a second call of on_host_pools_registered."""
    kv, draft = make.mha(), make.mha(layers=1)
    backend = disk_rig.backend(kv)
    keys, at = chain(2), slots(range(2), 16)
    assert backend.batch_set_v2([transfer("draft", keys, at)], after()) == {"draft": [False, False]}
    backend.register_mem_host_pool_v2(draft.host, PoolName.DRAFT)
    assert backend.batch_set_v2([transfer("draft", keys, at)], after()) == {"draft": [True, True]}


def test_a_prefix_that_ends_inside_a_chunk_of_a_side_pool(two: Two) -> None:
    keys = chain(8)
    two.put("kv", keys, [True] * 6 + [False] * 2, positions=True)
    two.put("draft", keys, [True] * 8, positions=True)
    result = two.ours.batch_exists_v2(keys, [transfer("draft", keys)], after())
    assert (result.kv_hit_pages, result.extra_pool_hit_pages) == (6, {"kv": 6, "draft": 6})
