"""Reading whole blobs and judging them before anybody else gets them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sgkv.backends.base import Backend, BlobInfo, GetItem, Part, Status
from sgkv.chunk.header import Header
from sgkv.prewarm.blobs import BlobName, examine, parse_key
from sgkv.prewarm.outcomes import BAD, Outcome
from sgkv.prewarm.pace import Control
from sgkv.prewarm.running import Buffers

_LARGEST = 8 << 30
"""Twice what the largest chunks there could be take; no buffer is made for more."""


class Fetched(NamedTuple):
    """`raw` holds the blob where the outcome is GOOD; its bytes are the worker's until its next fetch."""

    outcome: Outcome
    raw: memoryview = memoryview(b"")
    header: Header | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Reads from one tier, for any number of workers."""

    source: Backend
    control: Control
    buffers: Buffers
    clock: Callable[[], float] = time.time
    """Unix seconds, for expiry."""

    def fetch(self, blob: BlobInfo) -> Fetched:
        """The blob, read and verified; LEFT where the run was stopped first.

        A blob is called bad only after a second read agreed, for the first may have suffered on its way,
        and only when it is still of the size that it was listed with: another may have taken its place.
        """
        fetched = self._fetch(blob)
        if fetched.outcome not in BAD:
            return fetched
        try:
            now = next((one for one in self.source.scan(blob.key) if one.key == blob.key), None)
        except OSError as error:
            return Fetched(Outcome.FAILED, why=f"found {fetched.outcome}, and cannot be looked up: {error}")
        if now is None:
            return Fetched(Outcome.GONE)
        return fetched if now.size == blob.size else self._fetch(now)

    def _fetch(self, blob: BlobInfo) -> Fetched:
        """In one call, as large as `blob` says it is."""
        name = parse_key(blob.key)
        if name is None or not blob.size:
            return Fetched(Outcome.FOREIGN, why="no chunk")
        if blob.size > _LARGEST:
            return Fetched(Outcome.UNKNOWN_FORMAT)
        if not self.control.admit(blob.size):
            return Fetched(Outcome.LEFT)
        raw = self.buffers.room(blob.size)
        bad: Outcome | None = None
        status = Status.ERROR
        for _ in self.control.attempts():
            (status,) = self.source.get([GetItem(blob.key, [Part(0, raw)])])
            found = self._judged(status, name, raw)
            if found is not None and (found.outcome not in BAD or found.outcome is bad):
                return found
            bad = found.outcome if found else bad
        if self.control.stopped:
            return Fetched(Outcome.LEFT)
        doubt = f"one read found it {bad}, and no other agreed" if bad else f"cannot be read: {status.value}"
        return Fetched(Outcome.FAILED, why=doubt)

    def _judged(self, status: Status, name: BlobName, raw: memoryview) -> Fetched | None:
        """What one read says of the blob; None where it says nothing."""
        if status is Status.ABSENT:
            return Fetched(Outcome.GONE)
        if status is Status.SHORT:
            return Fetched(Outcome.CORRUPT, why="shorter than it was listed")
        if status is not Status.OK:
            return None
        examined = examine(name, raw, self.clock())
        return Fetched(examined.outcome, raw, examined.header)
