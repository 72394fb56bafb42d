"""One run: items spread over workers, each counted as it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sgkv.backends.workers import WorkerPool, spread
from sgkv.prewarm.amounts import Amount, Item, total
from sgkv.prewarm.outcomes import Ended, Outcome, Report, Tally
from sgkv.prewarm.pace import Control
from sgkv.prewarm.progress import Listener, Silent

_JOIN_SECONDS = 5.0


T = TypeVar("T", bound=Item)


class Verdict(NamedTuple):
    """How one item ended, and, for a problem, why."""

    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What is the same for every kind of run."""

    control: Control = field(default_factory=Control)
    listener: Listener = field(default_factory=Silent)
    workers: int = 4
    dry_run: bool = False
    tally: Tally = field(default_factory=Tally)
    began: float = field(default_factory=time.monotonic)
    facts: dict[str, object] = field(default_factory=dict)
    """For the report: what only this kind of run knows."""
    copies: list[dict[str, object]] = field(default_factory=list)
    """For the report: what was selected, from where to where."""

    def over(
        self, what: str, items: Sequence[T], name: Callable[[T], str], work: Callable[[T], Verdict]
    ) -> None:
        """Call `work` once for every item, in this thread and `workers - 1` others, and count verdicts.

        A dry run only counts the items. Once the run is stopped, what has not begun counts as LEFT.
        An exception of `work` stops the run and propagates.
        """
        amount = total(items)
        self.listener.begin(what, *amount)
        if self.dry_run:
            self.tally.add_all(Outcome.PLANNED, amount)
            return

        def one(at: int) -> None:
            item = items[at]
            try:
                verdict = Verdict(Outcome.LEFT) if self.control.stopped else work(item)
            except BaseException:
                self.control.stop(Ended.GAVE_UP)
                raise
            self._count(verdict, item.size, name(item))

        pool = WorkerPool(max(1, self.workers - 1), "sgkv-prewarm", backlog=self.workers)
        try:
            spread(pool, len(items), one, self.workers - 1)
        finally:
            pool.close(_JOIN_SECONDS)

    def note_copy(self, source: str, target: str, namespaces: Mapping[str, Amount]) -> None:
        """For the report: what was selected, from where to where."""
        shown = {name: amount._asdict() for name, amount in namespaces.items()}
        self.copies.append({"from": source, "to": target, "namespaces": shown})

    def report(self, command: str) -> Report:
        """What has happened so far."""
        outcomes = self.tally.amounts()
        ended = self.control.ended
        if ended is Ended.COMPLETE and Outcome.LEFT in outcomes:
            ended = Ended.LIMIT
        return Report(
            command,
            ended,
            time.monotonic() - self.began,
            outcomes,
            self.tally.problems(),
            self.dry_run,
            {**self.facts, "copies": self.copies, "retries": self.control.retries},
        )

    def _count(self, verdict: Verdict, size: int, name: str) -> None:
        if verdict.outcome is Outcome.FAILED:
            self.control.failed()
        elif verdict.outcome is not Outcome.LEFT:
            self.control.succeeded()
        if verdict.outcome is not Outcome.LEFT:
            self.listener.advance(size)
        self.tally.add(verdict.outcome, size, name, verdict.why)


class Buffers:
    """One buffer a thread, as large as the largest blob it has had to hold."""

    def __init__(self) -> None:
        self._mine = threading.local()

    def room(self, size: int) -> memoryview:
        """`size` bytes of the calling thread's buffer; its next call hands out the same ones."""
        buffer: bytearray | None = getattr(self._mine, "buffer", None)
        if buffer is None or len(buffer) < size:
            buffer = self._mine.buffer = bytearray(size)
        return memoryview(buffer)[:size]
