"""Lets batches through until closed, and knows when the last one has left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Counts what is under way, so that `close` can wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def passing(self) -> Iterator[bool]:
        """Hold the gate open for one batch; yields False when it is closed."""
        with self._changed:
            admitted = not self._closed
            self._inside += admitted
        try:
            yield admitted
        finally:
            if admitted:
                with self._changed:
                    self._inside -= 1
                    if self._closed and not self._inside:
                        self._changed.notify_all()

    def close(self, timeout: float) -> bool:
        """Refuse newcomers and wait for those inside; False when some are left after `timeout` s."""
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: not self._inside, timeout)
