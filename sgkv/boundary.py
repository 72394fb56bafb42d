"""The one place where our own failures become results.

A storage layer must never hurt the engine it serves. Inside, code raises what is wrong; at the edge
(an engine's call into us, or the top of one of our threads) `contained` turns it into a counted,
logged miss. Errors of one type at one place are logged once a minute, with how many were held back:
their texts name pages and slots, so that no two are the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sgkv.counters import Counters

logger = logging.getLogger("sgkv")
_QUIET_SECONDS = 60.0


class _Throttle:
    """Lets a message through once in `_QUIET_SECONDS` and counts the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def admit(self, key: str) -> int | None:
        """How many repeats were held back since the last one let through; None to hold this back."""
        now = time.monotonic()
        with self._lock:
            last, held = self._seen.get(key, (float("-inf"), 0))
            if now - last < _QUIET_SECONDS:
                self._seen[key] = (last, held + 1)
                return None
            self._seen[key] = (now, 0)
            return held


_throttle = _Throttle()


@contextmanager
def contained(what: str, counters: Counters, *, lets: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Run the block; an exception is logged, counted as `internal_errors` and goes no further.

    Those in `lets` do: refusals that the engine is to see, while it starts.
    """
    try:
        yield
    except lets:
        raise
    except Exception as error:  # this is the boundary
        counters.add("internal_errors")
        held = _throttle.admit(f"{what}: {type(error).__name__}")
        if held is not None:
            logger.exception("sgkv: %s failed; treated as a miss (%d repeats not logged)", what, held)
