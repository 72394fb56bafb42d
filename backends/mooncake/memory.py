"""Memory for the library to write into, and how to let go of it where a write may still be under way."""

from __future__ import annotations

import ctypes
import mmap

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import address_of
from sgkv.backends.mooncake.immortal import keep_forever


def mapped(size: int) -> Buffer:
    """`size` bytes of memory of their own, which live as long as a view of them does."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def forget(view: Buffer) -> None:
    """Give the memory of `mapped` back and keep the addresses: what still lands there touches nobody."""
    keep_forever(view)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise(ctypes.c_void_p(address_of(view)), ctypes.c_size_t(len(view)), mmap.MADV_DONTNEED)
