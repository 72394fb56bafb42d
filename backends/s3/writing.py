"""Publishing one blob."""

from __future__ import annotations

from sgkv.backends.base import PutItem, Status
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import prepared
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.remote.room import claim
from sgkv.backends.s3.objects import Objects

LARGEST_PUT = 5 << 30
"""Bytes; past it S3 wants a multipart upload ("Uploading objects", S3 user guide). No chunk comes near."""


class Writer:
    """Asks whether the key is new, makes room, prepares, puts. Runs in I/O threads."""

    def __init__(self, objects: Objects, known: KnownKeys) -> None:
        self._objects = objects
        self._known = known

    def put(self, item: PutItem, deadline: Deadline | None) -> Status:
        if deadline is not None and deadline.over:
            return Status.TIMEOUT
        size = item.size
        if size > LARGEST_PUT:
            return Status.FULL
        known = self._existing(item.key, deadline)
        if known is not Status.ABSENT:
            return Status.EXISTS if known is Status.OK else known
        if not claim(self._known, size, lambda keys: [self._objects.delete(key, deadline) for key in keys]):
            return Status.FULL
        status = Status.ERROR
        try:
            status = self._publish(item, deadline)
        finally:
            self._known.settle(item.key, size, published=status.ok)
        return status

    def _existing(self, key: str, deadline: Deadline | None) -> Status:
        (known,) = self._known.presence([key])
        if known is None:
            return self._objects.head(key, deadline)
        return Status.OK if known else Status.ABSENT

    def _publish(self, item: PutItem, deadline: Deadline | None) -> Status:
        with landing(deadline) as admitted:  # the item's own work touches the caller's buffers
            if not admitted:
                return Status.TIMEOUT
            if not prepared(item):
                return Status.ERROR
        return self._objects.put(item.key, item.buffers, deadline)
