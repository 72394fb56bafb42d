"""Memory that benchmarks copy from and to: resident before the clock starts."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from sgkv.backends.base import Buffer


def resident(size: int) -> Buffer:
    """`size` bytes of zeros in huge pages where the kernel offers them, like the cpu tier's arena."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(mapping)
    ctypes.memset(address_of(view), 0, size)
    return view


def at_address(address: int, size: int) -> Buffer:
    """Memory that somebody else owns, and must keep."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def address_of(view: Buffer) -> int:
    """Where a view's bytes lie, read-only ones too; good for as long as the view is kept."""
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def cut(view: Buffer, size: int) -> Iterator[Buffer]:
    """Consecutive pieces of `size` bytes."""
    return (view[start : start + size] for start in range(0, len(view), size))
