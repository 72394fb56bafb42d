"""Bytes between a file and the caller's buffers, with and without a deadline.

A caller that gives up gets its buffers back while a thread may still hang in the device. So with
a deadline they are filled only inside `Deadline.landing`, where nothing may wait for a device:
what the page cache has is read straight into them with RWF_NOWAIT, the rest goes through a piece
of memory of the worker's own. Writes need no such detour: what an abandoned write read too late
is never published.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator, Sequence

from sgkv.backends import failpoints
from sgkv.backends.base import Buffer, GetItem, Part, Status
from sgkv.backends.buffers import after, first
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline, landing

_IOV_MAX = 1024
"""linux/uio.h, UIO_MAXIOV."""
_PIECE = 1 << 20
"""Bytes of a worker's own memory."""
_HOT = (512 << 10) + (64 << 10)
"""Bytes read at a time, beside a header: half of what a core's own cache holds. On a core with 1 MiB of it,
a checksum of what was just read added 18 % to the read in pieces of 256 KiB, 21 % in pieces of 512 KiB, 27 %
in pieces of 1 MiB and 30 % in pieces of 4 MiB; but each piece costs 2 microseconds of Python."""

Buffers = Sequence[Buffer]


class _Worker(threading.local):
    """One piece of page-aligned memory a thread, made when first needed."""

    def __init__(self) -> None:
        self.piece: Buffer = memoryview(mmap.mmap(-1, _PIECE))


_worker = _Worker()


def runs(parts: Sequence[Part], most: int | None = None) -> Iterator[tuple[int, int, Buffers]]:
    """Parts whose bytes follow each other in the blob, joined: (offset, end, buffers).

    A run that would be longer than `most` bytes is cut between parts.
    """
    start, end, buffers = 0, 0, list[Buffer]()
    for offset, buffer in parts:
        size = len(buffer)
        if buffers and (offset != end or (most is not None and end + size - start > most)):
            yield start, end, buffers
            buffers = []
        if not buffers:
            start = end = offset
        buffers.append(buffer)
        end += size
    if buffers:
        yield start, end, buffers


def read_resident(fd: int, item: GetItem) -> Status | None:
    """Fill every part from the page cache: OK, or None where that takes a device or ends early.

    Where a file ends, only a read that may wait can tell: some kernels call it the end where the page
    cache ends (preadv2(2), BUGS). In pieces that stay in the processor's cache until `item.progress`
    has seen them. Raises OSError with EOPNOTSUPP where the file system cannot tell what is in memory.
    """
    progress, done = item.progress, 0
    planned = list(runs(item.parts, _HOT))  # a page that was read leaves nothing of Python in the caches
    for start, end, buffers in planned:
        filled = _try_resident(fd, buffers, start)
        while start + filled < end:
            more = _try_resident(fd, after(buffers, filled), start + filled) if filled else 0
            if not more:
                return None
            filled += more
        done += len(buffers)
        if progress is not None:
            progress(done)
    return Status.OK


def read_waiting(fd: int, parts: Sequence[Part]) -> Status:
    """Fill every part, however long that takes: OK, or SHORT where the file ends before."""
    for offset, _, buffers in runs(parts):
        left, at = buffers, offset
        while left:
            filled = os.preadv(fd, left[:_IOV_MAX], at)
            if not filled:
                return Status.SHORT
            left, at = after(left, filled), at + filled
    return Status.OK


def read_landing(fd: int, parts: Sequence[Part], deadline: Deadline) -> Status:
    """Fill every part in a way the caller can abandon at any moment: OK, SHORT or TIMEOUT."""
    for offset, _, buffers in runs(parts):
        left, at = buffers, offset
        while left:
            filled = _read_piece(fd, left, at, deadline)
            if not filled:
                return Status.TIMEOUT if filled is None else Status.SHORT
            left, at = after(left, filled), at + filled
    return Status.OK


def write(fd: int, buffers: Buffers, deadline: Deadline | None) -> Status:
    """Write all buffers from the file's start: OK, or TIMEOUT as soon as it is noticed to be too late.

    Whether the buffers still held what they should when the last was read, the caller must ask.
    """
    at, left = 0, buffers
    while left:
        if deadline is not None and deadline.over:
            return Status.TIMEOUT
        written = os.pwritev(fd, left[:_IOV_MAX], at)
        left, at = after(left, written), at + written
        failpoints.passing("put.written")
    return Status.OK


def _try_resident(fd: int, buffers: Buffers, offset: int) -> int:
    try:
        return os.preadv(
            fd, buffers if len(buffers) <= _IOV_MAX else buffers[:_IOV_MAX], offset, os.RWF_NOWAIT
        )
    except BlockingIOError:
        return 0


def _read_piece(fd: int, buffers: Buffers, offset: int, deadline: Deadline) -> int | None:
    """Read up to a piece however long that takes, then land it; None when it is too late by then."""
    piece = _worker.piece
    filled = os.preadv(fd, [piece[: min(_PIECE, sum(map(len, buffers)))]], offset)
    with landing(deadline) as admitted:
        if not admitted:
            return None
        at = 0
        for target in first(buffers, filled):
            copy(target, piece[at : at + len(target)])
            at += len(target)
    return filled
