"""A batch of reads: windows of all its blobs side by side, each blob judged when its last has come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from sgkv.backends.base import GetItem, Status
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import checked
from sgkv.backends.remote.spans import Window, windows
from sgkv.backends.s3.objects import Objects


@dataclass(slots=True)
class _Pending:
    """One blob whose windows are on their way."""

    item: GetItem
    left: int
    status: Status = Status.OK
    etags: set[str] = field(default_factory=set)


class Batch:
    """`run(n)` for each n below `jobs`, in any threads; then `statuses` are the answer.

    An item whose jobs have not all run is TIMEOUT.
    """

    def __init__(self, objects: Objects, items: Sequence[GetItem], deadline: Deadline | None) -> None:
        self._objects = objects
        self._deadline = deadline
        self._lock = threading.Lock()
        self._jobs: list[tuple[int, Window | None]] = []
        self._pending: list[_Pending] = []
        self.statuses = [Status.TIMEOUT] * len(items)
        for at, item in enumerate(items):
            wanted: list[Window | None] = [*windows(item.parts)]
            wanted = wanted or [None]  # of a blob whose bytes nobody wants only its existence matters
            self._pending.append(_Pending(item, len(wanted)))
            self._jobs += [(at, window) for window in wanted]

    @property
    def jobs(self) -> int:
        return len(self._jobs)

    def run(self, nth: int) -> None:
        at, window = self._jobs[nth]
        pending = self._pending[at]
        status, etag = pending.status, ""
        if not status.ok:
            pass  # its bytes are of no use any more
        elif window is None:
            status = self._objects.head(pending.item.key, self._deadline)
        else:
            status, etag = self._objects.get(pending.item.key, window, self._deadline)
        if self._arrived(pending, status, etag):
            self.statuses[at] = self._verdict(pending)

    def _arrived(self, pending: _Pending, status: Status, etag: str) -> bool:
        """Note one window; True for the last."""
        with self._lock:
            if pending.status is Status.OK:
                pending.status = status
            if etag:
                pending.etags.add(etag)
            pending.left -= 1
            return not pending.left

    def _verdict(self, pending: _Pending) -> Status:
        if pending.status is not Status.OK:
            return pending.status
        if len(pending.etags) > 1:
            self._objects.note_mixture(pending.item.key)
            return Status.ERROR
        with landing(self._deadline) as admitted:
            if not admitted:
                return Status.TIMEOUT
            return Status.OK if checked(pending.item) else Status.CORRUPT
