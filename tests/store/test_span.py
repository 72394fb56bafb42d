"""Spans and chunks: which pages belong together, wherever a batch begins and ends."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sgkv.store.memo import ChunkMemo, Spot
from sgkv.store.span import Span, runs

NAMES = [f"h{i}" for i in range(64)]
cuts = st.integers(0, 40)


@given(cuts, st.integers(0, 20), st.sampled_from([1, 2, 4, 16]))
def test_chunks_and_tail_cover_the_span_once(start, length, per_chunk):
    span = Span(NAMES[start : start + length], NAMES[:start])
    covered = [page for chunk in span.chunks(per_chunk) for page in range(chunk.first, chunk.stop)]
    assert covered + list(range(span.tail(per_chunk), len(span.hashes))) == list(range(len(span.hashes)))


@given(cuts, st.integers(0, 20), st.sampled_from([1, 2, 4, 16]))
def test_chunks_are_aligned_to_the_sequence(start, length, per_chunk):
    span = Span(NAMES[start : start + length], NAMES[:start])
    for chunk in span.chunks(per_chunk):
        last = NAMES.index(chunk.last_hash)
        assert (last + 1) % per_chunk == 0
        assert span.chunk_hashes(chunk) == NAMES[last + 1 - per_chunk : last + 1]
        assert chunk.skipped + chunk.stop - chunk.first == per_chunk


@given(cuts, st.integers(0, 20), st.sampled_from([1, 4]))
def test_the_chain_names_every_chunk_up_to_the_end(start, length, per_chunk):
    span = Span(NAMES[start : start + length], NAMES[:start])
    whole = Span(NAMES[: start + length])
    assert span.chunk_chain(per_chunk) == [chunk.last_hash for chunk in whole.chunks(per_chunk)]


def test_an_unknown_position_reads_as_the_start():
    assert Span(NAMES[:8], None).start == 0
    assert [chunk.last_hash for chunk in Span(NAMES[:8], None).chunks(4)] == ["h3", "h7"]


def test_the_memo_finds_pages_by_hash_and_forgets_the_oldest():
    memo = ChunkMemo(capacity=8)
    memo.remember(NAMES[:4])
    assert memo.find("h1") == Spot("h3", 1)
    for start in range(4, 28, 4):
        memo.remember(NAMES[start : start + 4])
    assert memo.find("h1") is None
    assert memo.find("h26") == Spot("h27", 2)
    memo.forget()
    assert memo.find("h26") is None


@given(cuts, st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_part_is_the_span_of_its_pages(start, length, first, count):
    first = min(first, length)
    stop = min(first + count, length)
    part = Span(NAMES[start : start + length], NAMES[:start]).part(first, stop)
    assert part == Span(NAMES[start + first : start + stop], NAMES[: start + first])


def test_a_part_of_unknown_position_has_none():
    assert Span(["a", "b"], None).part(1, 2) == Span(["b"], None)


@given(st.sets(st.integers(0, 30)))
def test_runs_are_neighbours_together(pages):
    found = runs(sorted(pages))
    assert [page for run in found for page in run] == sorted(pages)
    assert all(before.stop < after.start for before, after in pairwise(found))
