"""How far copying out of a device may run behind what the engine has offered.

A page that waits to be copied is one that the engine must keep. Three positions in the sequence of all
pages ever offered bound that: pages before `start` are free again, those before `current` are copied and
wait for the engine to take note, those before `end` are accepted. A small window refuses pages that
could have been stored; a large one holds device memory that the engine wants for other requests.
"""

from __future__ import annotations

import threading

from sgkv.backends.base import Bound
from sgkv.counters import Counters


class OffloadWindow:
    """Pages between `start` and `end`, never more than `size` but for one offer alone. Any thread."""

    def __init__(self, size: int, counters: Counters) -> None:
        self.size = size
        self._counters = counters
        self._lock = threading.Lock()
        self.start = self.current = self.end = 0

    def has_room(self, pages: int) -> bool:
        """Whether an offer fits now. One larger than the window does when nothing else is in it."""
        with self._lock:
            held = self.end - self.start
        return not held or held + pages <= self.size

    def admit(self, pages: int) -> None:
        """The engine keeps `pages` more until they are released."""
        with self._lock:
            self.end += pages

    def stall(self, pages: int) -> None:
        """Count an offer that did not fit: its pages are not stored now."""
        self._counters.add("offload_stalled_pages", pages)

    def copied(self, pages: int) -> None:
        """The oldest `pages` not yet copied are dealt with."""
        with self._lock:
            self.current += pages

    def release(self, pages: int) -> None:
        """The engine has taken note of the oldest `pages` that are copied."""
        with self._lock:
            self.start += pages

    def empty(self) -> None:
        """The engine has dropped all its pages."""
        with self._lock:
            self.start = self.current = self.end

    @property
    def held(self) -> Bound:
        """Pages the engine keeps for us, of those it may be made to."""
        with self._lock:
            return Bound(self.end - self.start, self.size)
