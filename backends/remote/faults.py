"""Failures, counted; each kind is logged once."""

from __future__ import annotations

import logging
import threading
from collections import Counter

log = logging.getLogger(__name__)


class FaultLog:
    """Counters of one tier. Any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._said: set[tuple[str, str]] = set()

    def count(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counters[name] += amount

    def note(self, op: str, kind: str, what: str) -> None:
        """Count a failure of a request under `errors_{kind}`."""
        with self._lock:
            self._counters[f"errors_{kind}"] += 1
            first = (op, kind) not in self._said
            self._said.add((op, kind))
        if first:
            log.warning("%s: %s: %s (said once; see counter errors_%s)", self._name, op, what, kind)

    def counters(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counters)
