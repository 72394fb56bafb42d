"""Memory that two processes have mapped, each at an address of its own."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import address_of
from sgkv.chunk.blob import Page
from sgkv.node.wire import WireError

_MADV_POPULATE_WRITE = 23
"""Linux 5.14, include/uapi/asm-generic/mman-common.h; Python's mmap does not name it."""


def map_file(descriptor: int, size: int) -> Buffer:
    """The first `size` bytes of a memory file, readable and writable; mapped as long as a view is kept.

    Raises OSError or ValueError for what cannot be mapped.
    """
    return memoryview(mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED))


def populate_later(view: Buffer) -> None:
    """Enter all of a mapping into this process's page tables, which first touches would do one by one.

    In the background; where the kernel cannot, first touches do.
    """
    threading.Thread(target=_populate, args=(view,), name="sgkv-node-populate", daemon=True).start()


def _populate(view: Buffer) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise(
        ctypes.c_void_p(address_of(view)), ctypes.c_size_t(len(view)), ctypes.c_int(_MADV_POPULATE_WRITE)
    )


def may_shrink(descriptor: int) -> bool:
    """Whether somebody could make the file shorter, which ends every process that touches the rest."""
    try:
        return not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    except OSError:  # no memory file, or one that was made without seals
        return True


@dataclass(frozen=True, slots=True)
class Region:
    """Shared memory of an engine, as the daemon has it."""

    base: int
    """Where the engine has it."""
    view: Buffer

    def find(self, address: int, size: int) -> Buffer | None:
        """The bytes that the engine has at an address; None where they are not all in this region."""
        start = address - self.base
        if size < 0 or start < 0 or start + size > len(self.view):
            return None
        return self.view[start : start + size]


def map_region(descriptor: int, address: int, size: int, *, trusted: bool) -> Region:
    """What an engine shares. Raises WireError, saying why, for memory that cannot or must not be mapped."""
    if size <= 0 or os.fstat(descriptor).st_size < size:
        raise WireError(f"the shared file is shorter than {size} bytes")
    if not trusted and may_shrink(descriptor):
        raise WireError("memory of another user must be sealed against shrinking (F_SEAL_SHRINK)")
    try:
        return Region(address, map_file(descriptor, size))
    except (OSError, ValueError, OverflowError) as error:
        raise WireError(f"the shared file cannot be mapped: {error}") from error


def pages_in(regions: Sequence[Region], buffers: Sequence[tuple[int, int]], pages: int) -> list[Page]:
    """The pages whose buffers an engine named. Raises WireError for a buffer that is not in its regions."""
    if not buffers or not pages or len(buffers) % pages:
        raise WireError(f"{len(buffers)} buffers are not equally many for {pages} pages")
    found = [_view(regions, address, size) for address, size in buffers]
    each = len(found) // pages
    return [found[start : start + each] for start in range(0, len(found), each)]


def _view(regions: Sequence[Region], address: int, size: int) -> Buffer:
    for region in regions:
        view = region.find(address, size)
        if view is not None:
            return view
    raise WireError(f"{size} bytes at {address:#x} are not in shared memory")
