"""Letting a fleet get used to loading: nobody's prompts, then some, then all; and back when it hurts."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum

from sgkv.reasons import MissReason

logger = logging.getLogger("sgkv")

_LEAST_READS = 20
"""Before that many a budget is not judged."""
_TOO_SLOW = 0.05
"""Share of reads that may be slower than `slowest` says."""
_FAILED = frozenset(
    {
        MissReason.BREAKER_OPEN,
        MissReason.CORRUPT,
        MissReason.FOREIGN,
        MissReason.INTERNAL,
        MissReason.LOCKED,
        MissReason.NODE_AWAY,
        MissReason.TIER_ERROR,
        MissReason.TIMEOUT,
    }
)
"""What no read of pages that were there a moment ago should end as."""


class RolloutMode(StrEnum):
    """Whose prompts are loaded."""

    SHADOW = "shadow"
    PERCENT = "percent"
    ALL = "all"


class Rollout:
    """Any thread. Everything is stored and looked up in any mode: only loads are held back."""

    def __init__(
        self,
        mode: RolloutMode,
        *,
        percent: float = 100.0,
        most_failed: float | None = None,
        slowest: float | None = None,
        window: int = 200,
        pause: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Loading pauses for `pause` seconds when too many of the last `window` reads went wrong: a share of
        more than `most_failed` failed, or more than one in twenty took longer than `slowest` seconds.
        """
        self.pauses = 0
        self._share = {RolloutMode.SHADOW: 0.0, RolloutMode.ALL: 100.0}.get(mode, percent)
        self._most_failed = most_failed
        self._slowest = slowest
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._reads: deque[tuple[bool, bool]] = deque(maxlen=window)
        """(failed, too slow) of each."""
        self._until = 0.0

    @property
    def paused(self) -> bool:
        return self._clock() < self._until

    def lets(self, first_page: str | None) -> bool:
        """Whether a prompt that begins with a page is loaded: all that begin so are, or none.

        Conversations keep their first page, and so their side. One whose first page is not known, None, is
        loaded when all are.
        """
        place = int(first_page[:8], 16) % 10_000 if first_page else 9_999
        return place < 100 * self._share and not self.paused

    def note(self, seconds: float, reasons: Iterable[MissReason | None]) -> bool:
        """A read of pages that were to be there took so long, and ended so; True where loading pauses for
        it.
        """
        failed = any(reason in _FAILED for reason in reasons)
        slow = self._slowest is not None and seconds > self._slowest
        with self._lock:
            self._reads.append((failed, slow))
            why = None if self.paused else self._trouble()
            if why:
                self._reads.clear()
                self.pauses += 1
                self._until = self._clock() + self._pause
        if why:
            logger.warning("sgkv: nothing is loaded for %.0f s: %s", self._pause, why)
        return why is not None

    def _trouble(self) -> str | None:
        reads = len(self._reads)
        if reads < _LEAST_READS:
            return None
        failed, slow = (sum(column) for column in zip(*self._reads, strict=True))
        if self._most_failed is not None and failed > self._most_failed * reads:
            return f"{failed} of the last {reads} reads failed"
        if slow > _TOO_SLOW * reads:
            return f"{slow} of the last {reads} reads took longer than {self._slowest:g} s"
        return None
