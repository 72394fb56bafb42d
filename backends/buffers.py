"""Chains of buffers: their beginning, their end, and what is left of one; never joined or copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sgkv.backends.base import Buffer


def first(buffers: Iterable[Buffer], size: int) -> Iterator[Buffer]:
    """The first `size` bytes of a chain, or all of it."""
    for buffer in buffers:
        if not size:
            return
        part = buffer[:size]
        size -= len(part)
        yield part


def after(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """What follows the first `size` bytes of a chain; empty buffers at its start are left out."""
    for at, buffer in enumerate(buffers):
        if size < len(buffer):
            return [buffer[size:], *buffers[at + 1 :]]
        size -= len(buffer)
    return []


def cut_tail(buffers: Sequence[Buffer], most: int) -> tuple[list[Buffer], list[Buffer]]:
    """A chain cut in two: everything but its last `most` bytes, and these."""
    bulk = max(0, sum(map(len, buffers)) - most)
    return list(first(buffers, bulk)), after(buffers, bulk)


def pieces(buffers: Sequence[Buffer], most: int) -> Sequence[Buffer]:
    """A chain of the same bytes in which no buffer has more than `most`."""
    if max(map(len, buffers), default=0) <= most:
        return buffers
    return [buffer[start : start + most] for buffer in buffers for start in range(0, len(buffer), most)]
