"""Blocks for pages: never two in one place, all of them given back, and never more than there is."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sgkv.transfer.memory import PageMemory

MIB = 1 << 20
SIZES = st.sampled_from([1, 4096, 5000, 70_000, 300_000])


@given(st.lists(st.tuples(st.integers(1, 40), SIZES), max_size=12))
def test_blocks_do_not_overlap(requests: list[tuple[int, int]]):
    memory = PageMemory(MIB)
    taken = [(offset, size) for pages, size in requests for offset in memory.take(pages, size)]
    ends = sorted((offset, offset + size) for offset, size in taken)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert sum(size for _, size in taken) <= memory.used.used <= memory.used.limit <= MIB
    memory.give_back(offset for offset, _ in taken)
    assert memory.used.used == 0


def test_as_many_as_there_is_room_for():
    memory = PageMemory(4 * 4096)
    first = memory.take(6, 4096)
    assert len(first) == 4
    assert memory.take(1, 4096) == []
    memory.view(first[0], 4096)[:] = b"\1" * 4096
    memory.give_back(first[:1])
    assert memory.take(2, 4096) == first[:1]  # the memory that is resident already


def test_no_memory_has_no_room():
    memory = PageMemory(0)
    assert memory.take(1, 4096) == []
    assert memory.used.limit == 0
