"""Rearranging a page from one byte order into another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgkv.chunk.layout import AXES, PageLayout


def convert_page(source: memoryview, stored: PageLayout, wanted: PageLayout) -> bytes:
    """`source` in `stored` order, returned in `wanted` order; `stored.converts_to(wanted)` holds.

    Rows move whole: nothing is interpreted as a number, so every dtype converts bit for bit.
    """
    from_axes, to_axes = AXES[stored.order], AXES[wanted.order]
    permutation = [from_axes.index(axis) for axis in to_axes]
    planes, offset = [], 0
    for row, size in zip(stored.rows, stored.plane_bytes, strict=True):
        plane = np.frombuffer(source[offset : offset + size], dtype=np.dtype((np.void, row)))
        planes.append(plane.reshape(stored.shape()).transpose(permutation).tobytes())
        offset += size
    return b"".join(planes)


def convert_in_place(page: Sequence[memoryview], stored: PageLayout, wanted: PageLayout) -> None:
    """The same for a page that was read into its final buffers (which concatenate to the page)."""
    fill_buffers(memoryview(convert_page(memoryview(b"".join(page)), stored, wanted)), page)


def fill_buffers(source: memoryview, page: Sequence[memoryview]) -> None:
    """Fill the buffers of `page`, one after another, with the bytes of `source`."""
    offset = 0
    for buffer in page:
        buffer[:] = source[offset : offset + len(buffer)]
        offset += len(buffer)
