"""What processes that are killed have been promised, in memory that survives them."""

from __future__ import annotations

import enum
import mmap
import struct

_PROCESSES = 64
_COUNTERS = (0, 8 * _PROCESSES)
"""Where the counters of evictions begun, and of blobs evicted, begin."""


class State(enum.IntEnum):
    """What may be said about a blob whoever wrote it."""

    GONE = 0
    """Never put, or deleted by a call that returned: must not be readable."""
    UNSURE = 1
    """A call that changes it had begun when its process died: there or not, but whole."""
    PUBLISHED = 2
    """Its put returned a success: must be readable unless it was evicted since."""


class Ledger:
    """One byte a blob and two counters a process, in memory shared over fork."""

    def __init__(self, blobs: int) -> None:
        self.blobs = blobs
        self._memory = mmap.mmap(-1, 16 * _PROCESSES + blobs)

    def __getitem__(self, number: int) -> State:
        return State(self._memory[16 * _PROCESSES + number])

    def __setitem__(self, number: int, state: State) -> None:
        self._memory[16 * _PROCESSES + number] = state

    def begin_eviction(self, process: int) -> None:
        """A process has chosen what to evict, and has not deleted any of it."""
        self._increment(process)

    def count_eviction(self, process: int) -> None:
        """A process has deleted a blob to evict it."""
        self._increment(_PROCESSES + process)

    def possible_evictions(self, died: int) -> int:
        """Most blobs that were evicted: a process may die between deleting a blob and counting it."""
        begun, counted = (sum(struct.unpack_from(f"{_PROCESSES}q", self._memory, at)) for at in _COUNTERS)
        return counted + min(died, begun)

    def forget_evictions(self) -> None:
        struct.pack_into(f"{2 * _PROCESSES}q", self._memory, 0, *[0] * (2 * _PROCESSES))

    def _increment(self, counter: int) -> None:
        """Each process has its own: nothing orders their increments."""
        (before,) = struct.unpack_from("q", self._memory, 8 * counter)
        struct.pack_into("q", self._memory, 8 * counter, before + 1)
