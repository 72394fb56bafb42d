"""Space in the arena: no overlap, no leak, no shape in which free space is useless."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.cpu.index import BlobIndex, Entry
from sgkv.backends.cpu.slabs import BLOCK_UNIT, SlabAllocator, block_size
from sgkv.backends.eviction import Lru

CAPACITY = 64 * BLOCK_UNIT
sizes = st.integers(1, 20 * BLOCK_UNIT)


@given(st.lists(st.tuples(sizes, st.booleans()), max_size=80))
def test_blocks_never_overlap_and_all_space_comes_back(steps: list[tuple[int, bool]]) -> None:
    slabs, held = SlabAllocator(CAPACITY), list[range]()
    for size, drop in steps:
        if drop and held:
            slabs.free(held.pop(size % len(held)).start)
        offset = slabs.allocate(size)
        if offset is not None:
            block = range(offset, offset + block_size(size))
            assert block.stop <= CAPACITY
            assert not any(block.start < other.stop and other.start < block.stop for other in held)
            held.append(block)
        assert slabs.used == sum(map(len, held))
    for block in held:
        slabs.free(block.start)
    assert slabs.used == 0
    assert slabs.allocate(CAPACITY) == 0


@given(st.lists(sizes, min_size=1, max_size=120))
def test_with_eviction_every_size_that_fits_finds_room(steps: list[int]) -> None:
    index = BlobIndex(CAPACITY, Lru())
    for number, size in enumerate(steps):
        entry = index.reserve(str(number), size, 0, 0.0)
        assert isinstance(entry, Entry)
        index.commit(entry)
        assert index.slabs.used == sum(block_size(entry.size) for entry in index.entries.values())
        assert index.refs == 0


@given(st.lists(sizes, min_size=1, max_size=60), st.integers(0, 3))
def test_a_lease_blocks_no_more_than_its_neighbourhood(steps: list[int], leased: int) -> None:
    index = BlobIndex(4 * CAPACITY, Lru())
    for number in range(leased):
        entry = index.reserve(f"leased-{number}", 5 * BLOCK_UNIT, 0, 0.0)
        assert isinstance(entry, Entry)
        index.commit(entry)
        index.acquire(entry.key, 0.0)
    for number, size in enumerate(steps):
        entry = index.reserve(str(number), size, 0, 0.0)
        assert isinstance(entry, Entry)
        index.commit(entry)
    assert all(f"leased-{number}" in index.entries for number in range(leased))


def test_many_small_blobs_then_a_large_one() -> None:
    index = BlobIndex(1 << 30, Lru())
    for number in range(2000):
        entry = index.reserve(str(number), 100_000, 0, 0.0)
        assert isinstance(entry, Entry)
        index.commit(entry)
    entry = index.reserve("large", 1 << 30, 0, 0.0)
    assert isinstance(entry, Entry)


def test_little_is_lost_beside_awkward_sizes() -> None:
    capacity = 1 << 30
    for size in (4097, (1 << 20) + 4096, 5 * (1 << 20) + 1, 33 << 20):
        slabs, count = SlabAllocator(capacity), 0
        while slabs.allocate(size) is not None:
            count += 1
        assert count * block_size(size) > 0.9 * capacity


def test_an_eviction_across_sizes_takes_the_coldest_slab() -> None:
    index = BlobIndex(1 << 30, Lru())
    numbers = range(4096)  # 256 KiB each: the arena is full
    for number in numbers:
        entry = index.reserve(str(number), 256 << 10, 0, 0.0)
        assert isinstance(entry, Entry)
        index.commit(entry)
    index.touch([str(number) for number in numbers[:2048]])
    assert isinstance(index.reserve("other", 1 << 20, 0, 0.0), Entry)
    assert index.evicted_blobs <= 16
    assert all(str(number) in index.entries for number in numbers[:2048])
