"""Publishing one blob."""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH108, PTH116, PTH120

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from sgkv.backends import failpoints
from sgkv.backends.base import PutItem, Status
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.disk import transfer
from sgkv.backends.disk.faults import FaultLog
from sgkv.backends.disk.index import DiskIndex, charge
from sgkv.backends.disk.layout import Layout, publish
from sgkv.backends.disk.reader import UseMarks
from sgkv.backends.disk.room import Room
from sgkv.backends.hooks import prepared

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_MODE = 0o640
"""Blobs are made of prompts: nothing for everybody on the machine to read."""


class Writer:
    """Claims room, writes a temporary file, publishes it. Never raises OSError."""

    def __init__(
        self,
        layout: Layout,
        index: DiskIndex,
        room: Room,
        faults: FaultLog,
        marks: UseMarks,
        *,
        sync: bool,
    ) -> None:
        self._layout = layout
        self._index = index
        self._room = room
        self._faults = faults
        self._marks = marks
        self._sync = sync

    def put(self, item: PutItem, path: str, deadline: Deadline | None) -> Status:
        """Publish `item` as the file `path`. Runs in an I/O thread."""
        if deadline is not None and deadline.over:
            return Status.TIMEOUT
        try:
            return self._put(item, path, deadline)
        except FileNotFoundError:
            return self._put_anew(item, path, deadline)
        except OSError as error:
            return self._failed(error)

    def _put_anew(self, item: PutItem, path: str, deadline: Deadline | None) -> Status:
        """Try once more after the folder vanished."""
        try:
            self._layout.create()
            return self._put(item, path, deadline)
        except OSError as error:
            return self._failed(error)

    def _put(self, item: PutItem, path: str, deadline: Deadline | None) -> Status:
        size = item.size
        if self._find(item.key, path):
            return Status.EXISTS
        if not self._room.claim(size):
            return Status.FULL
        published = False
        failpoints.passing("put.claimed")
        try:
            status = self._write_or_evict(item, path, deadline)
            published = status is Status.OK
        finally:
            self._index.settle(item.key, size, published=published, after=item.after)
        if published:
            self._marks.note(item.key)
        failpoints.passing("put.indexed")
        return status

    def _find(self, key: str, path: str) -> bool:
        """Whether the file is there, whoever wrote it; the index learns of either answer."""
        try:
            info = os.stat(path)
        except FileNotFoundError:
            self._index.forget([key])
            return False
        if not stat.S_ISREG(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._index.add(key, info.st_size)
        return True

    def _write_or_evict(self, item: PutItem, path: str, deadline: Deadline | None) -> Status:
        try:
            return self._write(item, path, deadline)
        except OSError as error:
            if error.errno not in _NO_SPACE or not self._room.evict(item.size, charge(item.size)):
                raise
        return self._write(item, path, deadline)

    def _write(self, item: PutItem, path: str, deadline: Deadline | None) -> Status:
        temp = self._layout.temp_path()
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        status = Status.ERROR
        failpoints.passing("put.opened")
        try:
            filled = self._fill(fd, item, deadline)
            if filled is not Status.OK:
                return filled
            status = Status.OK if publish(temp, path) else Status.EXISTS
            failpoints.passing("put.renamed")
        finally:
            if status is not Status.OK:
                with suppress(OSError):
                    os.unlink(temp)
        if self._sync and status is Status.OK:
            _sync_folder(os.path.dirname(path))
        return status

    def _fill(self, fd: int, item: PutItem, deadline: Deadline | None) -> Status:
        try:
            with landing(deadline) as admitted:  # the item's own work touches the caller's buffers
                if not admitted:
                    return Status.TIMEOUT
                if not prepared(item):
                    return Status.ERROR
            status = transfer.write(fd, item.buffers, deadline)
            if self._sync and status is Status.OK:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        failpoints.passing("put.filled")
        late = deadline is not None and deadline.over  # then the buffers may have changed under the write
        return Status.TIMEOUT if late else status

    def _failed(self, error: OSError) -> Status:
        if error.errno in _NO_SPACE:
            return Status.FULL
        self._faults.note("put", error)
        return Status.ERROR


def _sync_folder(path: str) -> None:
    """Make a rename into `path` last: the file's own sync says nothing of its name."""
    with suppress(FileNotFoundError):  # dropped meanwhile, with the blob in it
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
