"""Requests for parts of an object: they cover the parts, and little else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.base import Part
from sgkv.backends.buffers import after, cut_tail
from sgkv.backends.remote.spans import windows

DATA = bytes(at % 251 for at in range(5000))


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    found, at = [], 0
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=8)):
        found.append(Part(at + gap, memoryview(bytearray(size))))
        at += gap + size
    return found


@given(parts(), st.integers(0, 200), st.integers(1, 1000))
def test_filling_the_windows_fills_the_parts(wanted: list[Part], gap: int, most: int) -> None:
    planned = list(windows(wanted, gap, most))
    for window in planned:
        at = window.start
        for buffer in window.buffers:
            buffer[:] = DATA[at : at + len(buffer)]
            at += len(buffer)
        assert len(window.buffers[0])
        assert len(window.buffers[-1])
    assert all(bytes(buffer) == DATA[at : at + len(buffer)] for at, buffer in wanted)
    asked = sum(window.size for window in planned)
    assert asked <= sum(len(part.buffer) for part in wanted) + gap * max(0, len(wanted) - 1)
    starts = [window.start for window in planned]
    assert starts == sorted(set(starts))


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 400))
def test_a_chain_of_buffers_is_cut_without_loss(sizes: list[int], size: int) -> None:
    whole = DATA[: sum(sizes)]
    view, buffers = memoryview(whole), []
    for piece in sizes:
        buffers.append(view[:piece])
        view = view[piece:]
    assert b"".join(after(buffers, size)) == whole[size:]
    head, tail = cut_tail(buffers, size)
    assert b"".join(head) + b"".join(tail) == whole
    assert sum(map(len, tail)) == min(size, len(whole))
