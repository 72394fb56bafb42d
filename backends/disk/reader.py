"""Reading one blob."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from sgkv.backends.base import GetItem, Status
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.disk import transfer
from sgkv.backends.disk.faults import FaultLog
from sgkv.backends.disk.index import DiskIndex
from sgkv.backends.hooks import checked

_MARK_SECONDS = 60.0

_Fill = Callable[[int, GetItem, Deadline | None], Status | None]


class UseMarks:
    """Which blobs have had their last use written to disk lately, so that it is not on every read.

    Writing a blob is a use, and its file's time is then.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._marked: set[str] = set()
        self._since = clock()

    def note(self, key: str) -> bool:
        """The file's time is of now; False where that was noted in this minute before."""
        with self._lock:
            if self._clock() - self._since >= _MARK_SECONDS:
                self._marked.clear()
                self._since = self._clock()
            if key in self._marked:
                return False
            self._marked.add(key)
            return True


class Reader:
    """Opens, fills, checks. Never raises OSError.

    What the page cache holds is limited by memory bandwidth, which a thread or two use up; what
    it does not hold wants many requests at the device. So a batch is first read with
    `resident`, by few threads, and what that leaves with `get`, by all.
    """

    def __init__(
        self,
        index: DiskIndex,
        faults: FaultLog,
        marks: UseMarks | None,
    ) -> None:
        """`marks` None leaves the files' times alone."""
        self._index = index
        self._faults = faults
        self._marks = marks
        self.knows_residency = True
        """Until the file system says that it cannot tell."""

    def resident(self, item: GetItem, path: str, deadline: Deadline | None) -> Status | None:
        """Fill and check the item if that takes no waiting for a device; None where it would."""
        if not self.knows_residency:
            return None
        return self._open(item, path, deadline, self._fill_resident)

    def get(self, item: GetItem, path: str, deadline: Deadline | None) -> Status:
        """Fill and check the item from the file `path`. Runs in an I/O thread."""
        return self._open(item, path, deadline, _fill) or Status.ERROR

    def _open(self, item: GetItem, path: str, deadline: Deadline | None, fill: _Fill) -> Status | None:
        if deadline is not None and deadline.over:
            return Status.TIMEOUT
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            self._index.forget([item.key])
            return Status.ABSENT
        except OSError as error:
            return self._failed(error)
        try:
            status = fill(fd, item, deadline)
            if status is Status.OK:
                self._note_use(fd, item.key)
        except OSError as error:
            return self._failed(error)
        finally:
            os.close(fd)
        return status

    def _fill_resident(self, fd: int, item: GetItem, deadline: Deadline | None) -> Status | None:
        """All of it inside one landing: nothing here waits for a device."""
        with landing(deadline) as admitted:
            if not admitted:
                return Status.TIMEOUT
            _start(item)
            try:
                status = transfer.read_resident(fd, item)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self.knows_residency = False
                return None
            return _verdict(item) if status is Status.OK else status

    def _failed(self, error: OSError) -> Status:
        self._faults.note("get", error)
        return Status.ERROR

    def _note_use(self, fd: int, key: str) -> None:
        if key not in self._index.sizes:
            self._index.add(key, os.fstat(fd).st_size)
        if self._marks is not None and self._marks.note(key):
            with suppress(OSError):  # another user's file, or a read-only folder: the order is lost, no more
                os.utime(fd)


def _fill(fd: int, item: GetItem, deadline: Deadline | None) -> Status:
    _start(item)
    if deadline is None:
        status = transfer.read_waiting(fd, item.parts)
    else:
        status = transfer.read_landing(fd, item.parts, deadline)
    if status is not Status.OK:
        return status
    with landing(deadline) as admitted:
        return _verdict(item) if admitted else Status.TIMEOUT


def _start(item: GetItem) -> None:
    if item.progress is not None:
        item.progress(0)


def _verdict(item: GetItem) -> Status:
    """Run the item's own check, which reads the caller's buffers: inside a landing."""
    return Status.OK if checked(item) else Status.CORRUPT
