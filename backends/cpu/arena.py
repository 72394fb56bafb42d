"""The memory of the CPU tier: one mapping without a name, faulted in before the engine needs it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import threading

from sgkv.backends.base import Buffer

_MADV_POPULATE_WRITE = 23
"""Linux 5.14, include/uapi/asm-generic/mman-common.h; Python's mmap does not name it."""
_PREFAULT_STEP = 32 << 20
"""Bytes a call, so that `close` waits for one step at most (about 30 ms)."""


class Arena:
    """`size` bytes at one address. The memory lives as long as a view of it does."""

    def __init__(self, size: int, *, prefault: bool = True, shared: bool = False) -> None:
        """Map `size` bytes (a multiple of the page size) and start faulting them in.

        With `prefault` a daemon thread touches all of it in the background, so that the engine's
        calls do not pay for first-touch faults. Where the kernel cannot, they are paid on use. `shared`
        memory can be mapped by other processes that are handed `fd`; it is gone with the last of them.
        """
        self.fd = _memory_file(size) if shared else None
        mapping = _mapping(size, self.fd)
        _advise_huge_pages(mapping)
        self.size = size
        self.view: Buffer = memoryview(mapping)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.view))
        self._prefaulted = 0
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._prefault, name="sgkv-cpu-prefault", daemon=True)
        if prefault:
            self._thread.start()

    @property
    def prefaulted_bytes(self) -> int:
        return self._prefaulted

    def wait_prefaulted(self, timeout: float) -> bool:
        """Wait until the whole arena is resident; False after `timeout` seconds or if it cannot be."""
        return self._ready.wait(timeout) and self._prefaulted == self.size

    def stop(self) -> None:
        """End the prefault, and hand out no more descriptors. The mapping goes with its last view."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def _prefault(self) -> None:
        while self._prefaulted < self.size and not self._stop.is_set():
            step = min(_PREFAULT_STEP, self.size - self._prefaulted)
            if not _populate(self.address + self._prefaulted, step):
                break
            self._prefaulted += step
        self._ready.set()


def _memory_file(size: int) -> int:
    """A file in memory that has a descriptor and no path: nothing is left of it after a crash."""
    fd = os.memfd_create("sgkv-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    # Whoever maps it could otherwise end every process that does, by making it shorter.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def _mapping(size: int, fd: int | None) -> mmap.mmap:
    if fd is None:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED)


def _advise_huge_pages(mapping: mmap.mmap) -> None:
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: a kernel built without them
            raise


def _populate(address: int, size: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)
    return bool(result == 0)
