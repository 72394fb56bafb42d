"""What became of the items of a run, counted by many threads, and the report that says so."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from sgkv.prewarm.amounts import Amount

_PROBLEMS_NAMED = 1000
"""Problems that a report names; beyond them they are only counted."""


class Outcome(StrEnum):
    """How one blob or prompt ended."""

    PLANNED = "planned"
    """Would have been worked on, had this not been a dry run."""
    COPIED = "copied"
    PRESENT = "present"
    """The target had it already."""
    GOOD = "good"
    COMPUTED = "computed"
    DONE_BEFORE = "done_before"
    """An earlier run did it, says the state file."""
    LEFT = "left"
    """Selected and not worked on: a limit, or the end of the run, came first."""
    GONE = "gone"
    """Deleted or evicted after it was listed."""
    EXPIRED = "expired"
    UNKNOWN_FORMAT = "unknown_format"
    """Written by another version of sgkv, as far as can be told; left alone."""
    CORRUPT = "corrupt"
    FOREIGN = "foreign"
    """Whole, but not what its key says."""
    REFUSED = "refused"
    """The server, or we before it, took the prompt for one that cannot be served."""
    FAILED = "failed"


BAD = frozenset({Outcome.CORRUPT, Outcome.FOREIGN})
"""A blob that no reader could use."""
PROBLEMS = BAD | {Outcome.REFUSED, Outcome.FAILED}


class Ended(StrEnum):
    """Why a run came to its end."""

    COMPLETE = "complete"
    LIMIT = "limit"
    """`max_bytes`, or the capacity of the target: the report counts what is left."""
    INTERRUPTED = "interrupted"
    GAVE_UP = "gave_up"
    """A tier or the server did not answer any more, or the target is full."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One item that did not go well."""

    item: str
    outcome: Outcome
    why: str = ""


class Tally:
    """Counts outcomes. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._amounts: dict[Outcome, Amount] = {}
        self._problems: list[Problem] = []

    def add(self, outcome: Outcome, size: int, item: str = "", why: str = "") -> None:
        """One item of `size` bytes; `item` and `why` name it where it is a problem."""
        with self._lock:
            self._amounts[outcome] = self._amounts.get(outcome, Amount()).plus(Amount(1, size))
            if outcome in PROBLEMS and len(self._problems) < _PROBLEMS_NAMED:
                self._problems.append(Problem(item, outcome, why))

    def add_all(self, outcome: Outcome, amount: Amount) -> None:
        """Many items that need no names."""
        if amount.items:
            with self._lock:
                self._amounts[outcome] = self._amounts.get(outcome, Amount()).plus(amount)

    def amount(self, outcome: Outcome) -> Amount:
        with self._lock:
            return self._amounts.get(outcome, Amount())

    def amounts(self) -> dict[Outcome, Amount]:
        with self._lock:
            return dict(self._amounts)

    def problems(self) -> list[Problem]:
        with self._lock:
            return list(self._problems)


@dataclass(frozen=True, slots=True)
class Report:
    """How a run went; `as_json` is what ``--json`` writes."""

    command: str
    ended: Ended
    seconds: float
    outcomes: Mapping[Outcome, Amount]
    problems: Sequence[Problem]
    """The first thousand; `outcomes` counts all."""
    dry_run: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)
    """What only this kind of run knows: tiers, namespaces, tokens."""

    @property
    def exit_code(self) -> int:
        """As documented: 0 all well, 1 problems, 3 gave up, 130 interrupted; 2 is for bad usage."""
        if self.ended is Ended.INTERRUPTED:
            return 130
        if self.ended is Ended.GAVE_UP:
            return 3
        return int(any(outcome in PROBLEMS for outcome in self.outcomes))

    def items(self, outcome: Outcome) -> int:
        return self.outcomes.get(outcome, Amount()).items

    def as_json(self) -> dict[str, Any]:
        named = sum(self.items(outcome) for outcome in PROBLEMS)
        return {
            "command": self.command,
            "dry_run": self.dry_run,
            "ended": self.ended.value,
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "outcomes": {outcome.value: amount._asdict() for outcome, amount in self.outcomes.items()},
            "problems": [asdict(problem) for problem in self.problems],
            "problems_not_named": named - len(self.problems),
            **self.facts,
        }
