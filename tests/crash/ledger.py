"""What processes that are killed have been promised, in memory that survives them."""

from __future__ import annotations

import enum
import mmap
import struct

_COUNTERS = 64


class State(enum.IntEnum):
    """What may be said about a blob whoever wrote it."""

    GONE = 0
    """Never put, or deleted by a call that returned: must not be readable."""
    UNSURE = 1
    """A call that changes it had begun when its process died: there or not, but whole."""
    PUBLISHED = 2
    """Its put returned a success: must be readable unless it was evicted since."""


class Ledger:
    """One byte a blob and one eviction counter a process, in memory shared over fork."""

    def __init__(self, blobs: int) -> None:
        self.blobs = blobs
        self._memory = mmap.mmap(-1, 8 * _COUNTERS + blobs)

    def __getitem__(self, number: int) -> State:
        return State(self._memory[8 * _COUNTERS + number])

    def __setitem__(self, number: int, state: State) -> None:
        self._memory[8 * _COUNTERS + number] = state

    def count_eviction(self, process: int) -> None:
        """Each process has its own counter: nothing orders their increments."""
        (before,) = struct.unpack_from("q", self._memory, 8 * process)
        struct.pack_into("q", self._memory, 8 * process, before + 1)

    @property
    def evictions(self) -> int:
        return sum(struct.unpack_from(f"{_COUNTERS}q", self._memory, 0))

    def forget_evictions(self) -> None:
        struct.pack_into(f"{_COUNTERS}q", self._memory, 0, *[0] * _COUNTERS)
