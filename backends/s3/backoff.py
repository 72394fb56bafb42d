"""Pauses that grow while something keeps failing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_FIRST, _LONGEST = 0.2, 5.0
"""Seconds."""


class Backoff:
    """A pause after a failure, twice as long as the one before; none after a success. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = _FIRST
        self._until = 0.0

    @property
    def pausing(self) -> bool:
        return self._clock() < self._until

    def failed(self) -> None:
        """Begin a pause. Failures during one are taken for the one that began it."""
        with self._lock:
            now = self._clock()
            if now >= self._until:
                self._until = now + self._pause
                self._pause = min(_LONGEST, 2 * self._pause)

    def succeeded(self) -> None:
        with self._lock:
            self._pause, self._until = _FIRST, 0.0
