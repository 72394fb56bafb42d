"""Which bytes of a blob to ask for, and in how many requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sgkv.backends.base import Buffer, Part


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes `[start, start + sum of the buffers)` of a blob, and where they go."""

    start: int
    buffers: Sequence[Buffer]

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))


_GAP = 128 << 10
"""Bytes nobody wants that are read all the same, because a request of its own would take longer."""
_MOST = 16 << 20
"""Past this a window is cut at the next part, so that one large blob comes through several connections."""


def windows(parts: Sequence[Part], gap: int = _GAP, most: int = _MOST) -> Iterator[Window]:
    """Few windows that cover the parts, which are sorted by offset and do not overlap."""
    start = end = 0
    buffers: list[Buffer] = []
    for offset, buffer in parts:
        if not len(buffer):
            continue
        if buffers and (offset - end > gap or end - start >= most):
            yield Window(start, buffers)
            buffers = []
        if not buffers:
            start = end = offset
        if offset > end:
            buffers.append(memoryview(bytearray(offset - end)))
        buffers.append(buffer)
        end = offset + len(buffer)
    if buffers:
        yield Window(start, buffers)
