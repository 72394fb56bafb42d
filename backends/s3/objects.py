"""Objects by the keys of blobs: names, attempts, deadlines, and what answers mean."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.base import Buffer, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.remote.spans import Window
from sgkv.backends.s3.options import S3Options
from sgkv.backends.s3.plane import DataPlane
from sgkv.backends.s3.replies import Reply
from sgkv.backends.s3.retrying import Attempts

_SLOWEST = 1 << 20
"""Bytes a second, less than which nobody waits for."""


class Objects:
    """One request at a time, with its retries; what it learns of a key is remembered. Any thread.

    Every request has a deadline: its caller's, or one of our own. Timeouts of silence alone would let a
    server that drips hold a thread for as long as it likes.
    """

    def __init__(
        self, plane: DataPlane, options: S3Options, known: KnownKeys, faults: FaultLog, *, directory: bool
    ) -> None:
        self._plane = plane
        self._prefix = options.prefix
        self._known = known
        self._faults = faults
        self._attempts = Attempts(options.attempts, faults)
        self._patience = options.attempts * options.read_timeout
        self.conditional = options.conditional
        """Whether to create with ``If-None-Match: *``; may be changed at any time."""
        self._headers = {} if directory else encryption_headers(options)

    def head(self, key: str, deadline: Deadline | None) -> Status:
        """OK or ABSENT, or why it is not known."""
        name, deadline = self._prefix + key, self._bounded(deadline)
        reply = self._attempts.of("head", lambda: self._plane.head(name, deadline), deadline, patient=False)
        status = self._status("head", key, reply)
        if status is Status.OK and isinstance(reply, Reply):
            self._known.see(key, reply.size)
        return status

    def get(self, key: str, window: Window, deadline: Deadline | None) -> tuple[Status, str]:
        """Fill a window; with the ETag of the object it came from."""
        name, deadline = self._prefix + key, self._bounded(deadline, window.size)
        reply = self._attempts.of("get", lambda: self._plane.get(name, window, deadline), deadline)
        status = self._status("get", key, reply)
        if not isinstance(reply, Reply):
            return status, ""
        if reply.status == 416 or (status is Status.OK and not reply.filled):
            return Status.SHORT, reply.etag
        if status is Status.OK:
            self._faults.count("read_bytes", window.size)
            self._known.see(key, reply.size)
        return status, reply.etag

    def note_mixture(self, key: str) -> None:
        """Count a blob whose windows came from two objects: one was replaced by another between requests."""
        self._faults.note("get", "mixture", f"{key} came in pieces of two objects")

    def put(self, key: str, buffers: Sequence[Buffer], deadline: Deadline | None) -> Status:
        """Create an object, unless there is one."""
        name, deadline = self._prefix + key, self._bounded(deadline, sum(map(len, buffers)))
        headers = self._headers | ({"If-None-Match": "*"} if self.conditional else {})
        reply = self._attempts.of("put", lambda: self._plane.put(name, buffers, headers, deadline), deadline)
        if isinstance(reply, Reply) and reply.status == 412:
            return Status.EXISTS
        status = self._status("put", key, reply)
        if status is Status.OK:
            self._faults.count("written_bytes", sum(map(len, buffers)))
        return Status.ERROR if status is Status.ABSENT else status  # no such bucket

    def delete(self, key: str, deadline: Deadline | None) -> bool:
        """Whether the object is gone, be it that it never was."""
        name, deadline = self._prefix + key, self._bounded(deadline)
        reply = self._attempts.of("delete", lambda: self._plane.delete(name, deadline), deadline)
        gone = self._status("delete", key, reply) in (Status.OK, Status.ABSENT)
        if gone:
            self._known.miss([key])
        return gone

    def close(self) -> None:
        self._attempts.close()
        self._plane.close()

    def _bounded(self, deadline: Deadline | None, size: int = 0) -> Deadline:
        return deadline or Deadline(self._patience + size / _SLOWEST)

    def _status(self, op: str, key: str, reply: Reply | Status) -> Status:
        if isinstance(reply, Status):
            return reply
        if reply.ok:
            return Status.OK
        if reply.absent:
            self._known.miss([key])
            return Status.ABSENT
        if reply.status not in (412, 416, 429) and reply.status < 500:  # the attempts have noted those
            self._faults.note(op, "refused", reply.said)
        return Status.ERROR


def encryption_headers(options: S3Options) -> dict[str, str]:
    """What asks for encryption at each write. Directory buckets refuse it."""
    if options.encryption is None:
        return {}
    headers: dict[str, str] = {"x-amz-server-side-encryption": options.encryption}
    if options.kms_key is not None:
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = options.kms_key
    return headers
