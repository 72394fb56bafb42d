"""Where pages lie in their sequence: chunks where SGLang says it, single pages where it does not."""

import logging
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sglang.srt.mem_cache.hicache_storage import STORAGE_BATCH_SIZE, HiCacheStorageExtraInfo

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, write
from tests.sglang.pools import Pools, fill, page_bytes

PER_CHUNK = 4  # 64 tokens a chunk, 16 a page


def blobs(folder: Path) -> tuple[int, int]:
    """(chunks, single pages) on disk."""
    names = [
        path.relative_to(folder / "blobs").parts for path in (folder / "blobs").rglob("*") if path.is_file()
    ]
    return sum(name[1] == "c" for name in names), sum(name[1] == "p" for name in names)


def back_up(backend: SgkvHiCache, pools: Pools, keys: Sequence[str], *, prefix_keys: bool) -> None:
    """As SGLang's `_page_backup`: batches of at most 128 pages, each with the hashes before it."""
    for start in range(0, len(keys), STORAGE_BATCH_SIZE):
        batch = keys[start : start + STORAGE_BATCH_SIZE]
        before = keys[:start] if prefix_keys else None
        assert all(write(backend, pools, batch, range(start, start + len(batch)), before))


def query(backend: SgkvHiCache, keys: Sequence[str]) -> int:
    """As SGLang's hybrid controller: every hash at once, and None where nothing is before them."""
    return backend.batch_exists(list(keys), HiCacheStorageExtraInfo(prefix_keys=None))


@pytest.fixture
def pools() -> Pools:
    pools = make.mha(pages=64)
    fill(pools, seed=1)
    return pools


def test_known_positions_make_chunks_and_a_tail(tiered_rig: Rig, pools: Pools) -> None:
    backend = tiered_rig.backend(pools)
    back_up(backend, pools, chain(10), prefix_keys=True)
    assert backend.store.flush(30)
    assert blobs(tiered_rig.folder) == (2, 2)


def test_unknown_positions_make_single_pages_and_are_said_once(
    tiered_rig: Rig, pools: Pools, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sgkv")
    backend = tiered_rig.backend(pools)
    for seed in range(3):
        back_up(backend, pools, chain(5, seed=seed), prefix_keys=False)
    assert backend.store.flush(30)
    assert blobs(tiered_rig.folder) == (0, 15)
    said = [
        record.message for record in caplog.records if "hicache_storage_pass_prefix_keys" in record.message
    ]
    assert len(said) == 1
    assert query(backend, chain(5, seed=2)) == 5


def test_pages_of_a_whole_chunk_need_no_positions(disk_rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """With 256-token pages a page is a chunk wherever it lies: nothing to say."""
    caplog.set_level(logging.INFO, "sgkv")
    pools = make.mha(page_size=256, pages=4)
    backend = disk_rig.backend(pools, chunk_tokens=256)
    back_up(backend, pools, chain(3, 256), prefix_keys=False)
    assert blobs(disk_rig.folder) == (3, 0)
    assert not any("hicache_storage_pass_prefix_keys" in record.message for record in caplog.records)


def test_batches_of_a_long_node_end_where_chunks_do(disk_rig: Rig) -> None:
    pools = make.mha(page_size=1, pages=300, layers=1, heads=1)
    keys = chain(300, 1)
    backend = disk_rig.backend(pools, chunk_tokens=16)
    back_up(backend, pools, keys, prefix_keys=True)
    assert blobs(disk_rig.folder) == (18, 12)
    assert query(backend, keys) == 300


def test_a_chunk_of_two_batches_is_put_together_in_memory(rig: Rig) -> None:
    """256 pages of one token a chunk, 128 a batch."""
    pools = make.mha(page_size=1, pages=600, layers=1, heads=1)
    fill(pools, seed=2)
    keys = chain(300, 1)
    backend = rig.backend(pools, chunk_tokens=256)
    back_up(backend, pools, keys, prefix_keys=True)
    backend.close()
    assert blobs(rig.folder) == (1, 44)
    backend = rig.backend(pools, chunk_tokens=256)
    assert query(backend, keys) == 300
    assert read(backend, pools, keys[:128], range(300, 428)) == [True] * 128
    assert [page_bytes(pools.host, 300 + page) for page in range(128)] == [
        page_bytes(pools.host, page) for page in range(128)
    ]


def test_the_chunk_that_a_later_node_completes(rig: Rig, pools: Pools) -> None:
    """Nodes end at any page; the pages that wait in memory join the chunk that the next node fills."""
    keys = chain(12)
    backend = rig.backend(pools)
    write(backend, pools, keys[:6], range(6), [])
    write(backend, pools, keys[6:11], range(6, 11), keys[:6])
    assert backend.store.flush(30)
    assert blobs(rig.folder) == (2, 3)


def test_without_memory_a_chunk_cut_by_nodes_stays_pages(disk_rig: Rig, pools: Pools) -> None:
    keys = chain(8)
    backend = disk_rig.backend(pools)
    write(backend, pools, keys[:6], range(6), [])
    write(backend, pools, keys[6:], range(6, 8), keys[:6])
    assert blobs(disk_rig.folder) == (1, 4)
    assert query(backend, keys) == 8


def test_a_prefetch_that_starts_inside_a_chunk(tiered_rig: Rig, pools: Pools) -> None:
    """The device already holds 5 pages: the query and the read begin at the sixth."""
    keys = chain(12)
    backend = tiered_rig.backend(pools)
    back_up(backend, pools, keys, prefix_keys=True)
    backend.close()
    backend = tiered_rig.backend(pools)
    assert backend.batch_exists(keys[5:], after(*keys[:5])) == 7
    assert read(backend, pools, keys[5:], range(20, 27), keys[:5]) == [True] * 7
    assert [page_bytes(pools.host, page) for page in range(20, 27)] == [
        page_bytes(pools.host, page) for page in range(5, 12)
    ]


def test_a_read_that_ends_inside_a_chunk_which_the_query_saw(disk_rig: Rig, pools: Pools) -> None:
    """A cut batch cannot name its last chunk; the query before it could."""
    keys = chain(8)
    backend = disk_rig.backend(pools)
    back_up(backend, pools, keys, prefix_keys=True)
    backend.close()
    backend = disk_rig.backend(pools)
    assert query(backend, keys) == 8
    assert read(backend, pools, keys[:6], range(20, 26)) == [True] * 6
    assert read(backend, pools, keys[6:], range(26, 28), keys[:6]) == [True] * 2


def test_a_wrong_idea_of_the_position_can_only_miss(disk_rig: Rig, pools: Pools) -> None:
    keys = chain(8)
    backend = disk_rig.backend(pools)
    back_up(backend, pools, keys, prefix_keys=True)
    backend.close()
    backend = disk_rig.backend(pools)
    wrong = chain(3, seed=9)
    assert backend.batch_exists(keys, after(*wrong)) < 8
    hits = read(backend, pools, keys, range(20, 28), wrong)
    for page, hit in enumerate(hits):
        assert not hit or page_bytes(pools.host, 20 + page) == page_bytes(pools.host, page)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.sets(st.integers(1, 19), max_size=4),
    known=st.booleans(),
    told=st.booleans(),
    start=st.integers(0, 19),
)
def test_however_nodes_are_cut_every_page_comes_back(
    shared_backend: tuple[SgkvHiCache, Pools, Iterator[int]],
    cuts: set[int],
    known: bool,
    told: bool,
    start: int,
) -> None:
    """Also where a read is not told its position: SGLang drops the head of a prefetch that began at the
    root, when the device got it meanwhile, and passes no prefix keys for the rest.
    """
    backend, pools, seeds = shared_backend
    keys = chain(20, seed=next(seeds))
    for first, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 20], strict=True):
        write(backend, pools, keys[first:stop], range(first, stop), keys[:first] if known else None)
    before = keys[:start] if told else None
    assert query(backend, keys) == 20
    assert read(backend, pools, keys[start:], range(20, 40 - start), before) == [True] * (20 - start)
    assert [page_bytes(pools.host, 20 + page) for page in range(20 - start)] == [
        page_bytes(pools.host, start + page) for page in range(20 - start)
    ]


@pytest.fixture
def shared_backend(disk_rig: Rig, pools: Pools) -> tuple[SgkvHiCache, Pools, Iterator[int]]:
    """One store for all examples, of which every one is another sequence."""
    return disk_rig.backend(pools), pools, count(1)
