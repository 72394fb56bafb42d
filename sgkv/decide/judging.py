"""What decisions of the gate were worth, by what the reads that followed took."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from sgkv.decide.gate import Decision, Gate

_REMEMBERED = 4096


class Verdict(StrEnum):
    """What was decided about pages, and whether that was right."""

    LOAD_RIGHT = "load_right"
    LOAD_WRONG = "load_wrong"
    """To compute them would have been quicker."""
    COMPUTE_RIGHT = "compute_right"
    COMPUTE_WRONG = "compute_wrong"
    """They were loaded all the same, and were there before they could have been computed."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A decision whose reads may come. Pages are counted from the start of the sequence."""

    first: int
    worth: int
    """Where that begins of which loading was not held to be worth it."""
    stop: int


class Judge:
    """Remembers the latest decision about each of some thousand sequences. Any thread; no I/O."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._lock = threading.Lock()
        self._awaited: OrderedDict[str, _Awaited] = OrderedDict()

    def expect(self, sequence: str, first: int, decision: Decision) -> None:
        """Reads of the pages from `first` on may follow. `sequence` is the hash of its first page."""
        with self._lock:
            self._awaited.pop(sequence, None)
            if decision.learning:  # it says nothing about what is worth it
                return
            self._awaited[sequence] = _Awaited(first, first + decision.worth, first + decision.hit)
            if len(self._awaited) > _REMEMBERED:
                self._awaited.popitem(last=False)

    def verdict(
        self, sequence: str, first: int, pages: int, page_bytes: int, page_tokens: int, seconds: float
    ) -> Verdict | None:
        """Of a read of `pages` from `first` on that took `seconds` and filled all of them.

        None where no decision is known, or it was to load one part of these pages and not another.
        """
        with self._lock:
            awaited = self._awaited.get(sequence)
        if awaited is None or not pages or not awaited.first <= first < first + pages <= awaited.stop:
            return None
        if first < awaited.worth < first + pages:
            return None
        begins = first == awaited.first
        paid = self._gate.pays(seconds, pages * page_bytes, pages * page_tokens, first * page_tokens, begins)
        if first < awaited.worth:
            return Verdict.LOAD_RIGHT if paid else Verdict.LOAD_WRONG
        return Verdict.COMPUTE_WRONG if paid else Verdict.COMPUTE_RIGHT
