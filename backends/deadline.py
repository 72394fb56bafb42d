"""How long an operation may take, and the promise that ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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

    @contextmanager
    def landing(self) -> Iterator[bool]:
        """Enter before writing into the caller's buffers; yields False when it is too late."""
        with self._changed:
            admitted = not self._cancelled
            self._landing += admitted
        try:
            yield admitted
        finally:
            if admitted:
                with self._changed:
                    self._landing -= 1
                    if self._cancelled and not self._landing:
                        self._changed.notify_all()

    def cancel(self) -> None:
        """Refuse new landings and wait for those under way. Idempotent."""
        with self._changed:
            self._cancelled = True
            self._changed.wait_for(lambda: not self._landing)


@contextmanager
def landing(deadline: Deadline | None) -> Iterator[bool]:
    """`deadline.landing()`, refused once it has expired too; always admitted without a deadline."""
    if deadline is None:
        yield True
        return
    with deadline.landing() as admitted:
        yield admitted and not deadline.expired
