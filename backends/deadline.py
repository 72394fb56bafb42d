"""How long an operation may take, and the promise that ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext


class Deadline:
    """A point in time for one operation, shared by the threads that work on it.

    A caller that gives up must be able to reuse its buffers. So every write into them happens
    inside `landing()`, which is refused after `cancel()`, and `cancel()` returns only when the
    writes that had begun are done. What goes on inside `landing()` must therefore be bounded:
    a memory copy or a read that cannot wait for a device, never blocking I/O.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds` from now; None never expires (but can be cancelled)."""
        self._clock = clock
        self._expires = None if seconds is None else clock() + seconds
        self._changed = threading.Condition(threading.Lock())
        self._landing = 0
        self._cancelled = False

    def remaining(self) -> float | None:
        """Seconds left, never negative; None where there is no limit."""
        return None if self._expires is None else max(0.0, self._expires - self._clock())

    @property
    def expired(self) -> bool:
        return self._expires is not None and self._clock() >= self._expires

    @property
    def over(self) -> bool:
        """Expired or cancelled: work that has not begun should not begin."""
        return self._cancelled or self.expired

    def landing(self) -> AbstractContextManager[bool]:
        """Enter before writing into the caller's buffers; yields False when it is too late."""
        return _Landing(self)

    def cancel(self) -> None:
        """Refuse new landings and wait for those under way. Idempotent."""
        with self._changed:
            self._cancelled = True
            self._changed.wait_for(lambda: not self._landing)

    def _begin(self) -> bool:
        with self._changed:
            admitted = not self._cancelled
            self._landing += admitted
        return admitted

    def _end(self) -> None:
        with self._changed:
            self._landing -= 1
            if self._cancelled and not self._landing:
                self._changed.notify_all()


class _Landing:
    """A class and not a generator: it is entered for every blob, and this is half the price."""

    __slots__ = ("_admitted", "_deadline")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._admitted = False

    def __enter__(self) -> bool:
        self._admitted = self._deadline._begin()  # noqa: SLF001 - two halves of one thing
        return self._admitted

    def __exit__(self, *exception: object) -> None:
        if self._admitted:
            self._deadline._end()  # noqa: SLF001


class _TimelyLanding(_Landing):
    """Refused once the deadline has expired, too."""

    __slots__ = ()

    def __enter__(self) -> bool:
        return super().__enter__() and not self._deadline.expired


def landing(deadline: Deadline | None) -> AbstractContextManager[bool]:
    """`deadline.landing()`, refused once it has expired too; always admitted without a deadline."""
    return nullcontext(True) if deadline is None else _TimelyLanding(deadline)
