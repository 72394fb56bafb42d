"""Whose transfer is next: large ones wait for large ones, and never a small one for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sgkv.backends.base import Bound
from sgkv.backends.deadline import Deadline

_LARGE = 4 << 20
"""Bytes from which a transfer is large: half a millisecond of copying."""


class Turns:
    """At most so many transfers at once, in the order in which they came. Any thread.

    Engines send large batches in pieces, and each piece queues again: so engines take turns, and a
    long prefetch of one keeps another's waiting for a piece and not for all of it.
    """

    def __init__(self, large: int, small: int) -> None:
        self._large, self._small = _Line(large), _Line(small)

    @contextmanager
    def turn(self, size: int, deadline: Deadline) -> Iterator[bool]:
        """Wait for a turn to move `size` bytes; yields False where there was none in time."""
        line = self._large if size > _LARGE else self._small
        if not line.enter(deadline.remaining()):
            yield False
            return
        try:
            yield True
        finally:
            line.leave()

    def bounds(self) -> dict[str, Bound]:
        return {"large_calls": self._large.bound, "small_calls": self._small.bound}


class _Line:
    """A semaphore that keeps to the order of arrival: whoever has just left does not go first again."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: deque[threading.Event] = deque()

    @property
    def bound(self) -> Bound:
        return Bound(self._inside, self._width)

    def enter(self, timeout: float | None) -> bool:
        with self._lock:
            if self._inside < self._width and not self._waiting:
                self._inside += 1
                return True
            called = threading.Event()
            self._waiting.append(called)
        if called.wait(timeout):
            return True
        with self._lock:
            if called not in self._waiting:  # it was called just now
                return True
            self._waiting.remove(called)
            return False

    def leave(self) -> None:
        """The place goes to the one who has waited longest, if there is one."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._inside -= 1
