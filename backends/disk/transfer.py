"""Bytes between a file and the caller's buffers, with and without a deadline.

A caller that gives up gets its buffers back while a thread may still hang in the device. So with
a deadline the buffers are only touched inside `Deadline.landing`, and nothing that can wait for
a device happens in there: what the page cache has is read straight into the buffers with
RWF_NOWAIT; the rest goes through a piece of memory of the worker's own, as do all writes.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterator, Sequence

from sgkv.backends.base import Buffer, Part, Status
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline

_IOV_MAX = 1024
"""linux/uio.h, UIO_MAXIOV."""
_PIECE = 1 << 20
"""Bytes of a worker's own memory."""

Buffers = Sequence[Buffer]


class _Worker(threading.local):
    """One piece of page-aligned memory a thread, made when first needed."""

    def __init__(self) -> None:
        self.piece: Buffer = memoryview(mmap.mmap(-1, _PIECE))


_worker = _Worker()


def runs(parts: Sequence[Part]) -> Iterator[tuple[int, list[Buffer]]]:
    """Parts whose bytes follow each other in the blob, joined: (offset, buffers)."""
    start, end, buffers = 0, 0, list[Buffer]()
    for offset, buffer in parts:
        if buffers and offset != end:
            yield start, buffers
            buffers = []
        if not buffers:
            start = end = offset
        buffers.append(buffer)
        end += len(buffer)
    if buffers:
        yield start, buffers


def read(fd: int, parts: Sequence[Part], deadline: Deadline | None) -> Status:
    """Fill every part: OK, SHORT where the file ends before, TIMEOUT where it is too late."""
    for offset, buffers in runs(parts):
        if deadline is None:
            status = _read_waiting(fd, buffers, offset)
        else:
            status = _read_landing(fd, buffers, offset, deadline)
        if status is not Status.OK:
            return status
    return Status.OK


def write(fd: int, buffers: Buffers, deadline: Deadline | None) -> Status:
    """Write all buffers from the file's start: OK, or TIMEOUT where it is too late."""
    if deadline is None:
        offset = 0
        while buffers:
            written = os.pwritev(fd, buffers[:_IOV_MAX], offset)
            buffers, offset = _after(buffers, written), offset + written
        return Status.OK
    return _write_landing(fd, buffers, deadline)


def _read_waiting(fd: int, buffers: Buffers, offset: int) -> Status:
    while buffers:
        filled = os.preadv(fd, buffers[:_IOV_MAX], offset)
        if not filled:
            return Status.SHORT
        buffers, offset = _after(buffers, filled), offset + filled
    return Status.OK


def _read_landing(fd: int, buffers: Buffers, offset: int, deadline: Deadline) -> Status:
    while buffers:
        with deadline.landing() as admitted:
            if not admitted or deadline.expired:
                return Status.TIMEOUT
            filled = _read_resident(fd, buffers[:_IOV_MAX], offset)
        if filled is None:
            filled = _read_piece(fd, buffers, offset, deadline)
        if filled is None:
            return Status.TIMEOUT
        if not filled:
            return Status.SHORT
        buffers, offset = _after(buffers, filled), offset + filled
    return Status.OK


def _read_resident(fd: int, buffers: Buffers, offset: int) -> int | None:
    """Read what the page cache has; None where it has nothing, or the file system cannot tell."""
    try:
        return os.preadv(fd, buffers, offset, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return None
        raise


def _read_piece(fd: int, buffers: Buffers, offset: int, deadline: Deadline) -> int | None:
    """Read up to a piece however long that takes, then land it; None when it is too late by then."""
    piece = _worker.piece
    filled = os.preadv(fd, [piece[: min(_PIECE, sum(map(len, buffers)))]], offset)
    with deadline.landing() as admitted:
        if not admitted:
            return None
        at = 0
        for target in _first(buffers, filled):
            copy(target, piece[at : at + len(target)])
            at += len(target)
    return filled


def _write_landing(fd: int, buffers: Buffers, deadline: Deadline) -> Status:
    offset = 0
    while buffers:
        with deadline.landing() as admitted:
            if not admitted or deadline.expired:
                return Status.TIMEOUT
            size = _fill_piece(buffers)
        _write_piece(fd, size, offset)
        buffers, offset = _after(buffers, size), offset + size
    return Status.OK


def _fill_piece(buffers: Buffers) -> int:
    at = 0
    for source in _first(buffers, _PIECE):
        copy(_worker.piece[at : at + len(source)], source)
        at += len(source)
    return at


def _write_piece(fd: int, size: int, offset: int) -> None:
    piece = _worker.piece[:size]
    while piece:
        written = os.pwrite(fd, piece, offset)
        piece, offset = piece[written:], offset + written


def _first(buffers: Buffers, size: int) -> Iterator[Buffer]:
    """The first `size` bytes of a chain of buffers, or all of it."""
    for buffer in buffers:
        if not size:
            return
        part = buffer[:size]
        size -= len(part)
        yield part


def _after(buffers: Buffers, size: int) -> Buffers:
    """What follows the first `size` bytes of a chain of buffers; empty buffers are left out."""
    for at, buffer in enumerate(buffers):
        if size < len(buffer):
            return [buffer[size:], *buffers[at + 1 :]]
        size -= len(buffer)
    return []
