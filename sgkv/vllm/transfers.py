"""Moving rows between vLLM's host memory and the store, in threads of our own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sgkv.backends.workers import WorkerPool, spread
from sgkv.boundary import contained
from sgkv.counters import Counters

_THREADS, _BACKLOG = 4, 1024


@dataclass(slots=True)
class Outcome:
    """What became of one job of vLLM's; every job has exactly one."""

    job_id: int
    keys: Sequence[bytes]
    is_load: bool
    done: list[bytes] = field(default_factory=list)
    """The keys that were moved."""
    seconds: float = 0.0
    nbytes: int = 0


class Transfers:
    """Loads and stores under way, and their outcomes. Loads have threads of their own. Any thread."""

    def __init__(self, counters: Counters, max_store_bytes: int) -> None:
        """`max_store_bytes` of rows, or one job, may wait to be stored: vLLM cannot reuse them before."""
        self._counters = counters
        self._max_store_bytes = max_store_bytes
        self._loads = WorkerPool(_THREADS, "sgkv-load", backlog=_BACKLOG)
        self._stores = WorkerPool(_THREADS, "sgkv-store", backlog=_BACKLOG)
        self._changed = threading.Condition()
        self._running = 0
        self._storing = 0
        self._refusing = False
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

    def submit(self, outcome: Outcome, nbytes: int, move: Callable[[Outcome], None]) -> None:
        """Run `move`, which fills the outcome in; one that cannot be run has moved nothing."""
        waiting = 0 if outcome.is_load else nbytes
        if not self._admit(waiting):
            self._counters.add("dropped_store_bytes", nbytes)
            self._outcomes.put(outcome)
            return

        def run() -> None:
            try:
                with contained("moving rows", self._counters):
                    if not self._refusing:
                        move(outcome)
            finally:
                self._end(outcome, waiting)

        if (self._loads if outcome.is_load else self._stores).submit(run) is None:
            self._end(outcome, waiting)

    def spread(self, outcome: Outcome, parts: int, work: Callable[[int], None]) -> None:
        """Call `work` for each part of a job under way, in its thread and in others that are free."""
        spread(self._loads if outcome.is_load else self._stores, parts, work, _THREADS - 1)

    def outcomes(self) -> list[Outcome]:
        """Of the jobs that ended since the last call."""
        ended = []
        while not self._outcomes.empty():
            ended.append(self._outcomes.get())
        return ended

    @property
    def refusing(self) -> bool:
        """Jobs should end as soon as they can."""
        return self._refusing

    def wait(self, timeout: float) -> bool:
        """Wait until every job has ended; False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    def drain(self, timeout: float) -> bool:
        """The same, but jobs that have not begun move nothing."""
        self._refusing = True
        try:
            return self.wait(timeout)
        finally:
            self._refusing = False

    def close(self, timeout: float) -> bool:
        """`drain`, for good."""
        drained = self.drain(timeout)
        self._refusing = True
        return all([self._loads.close(timeout), self._stores.close(timeout), drained])

    def _admit(self, store_bytes: int) -> bool:
        with self._changed:
            fits = self._storing + store_bytes <= self._max_store_bytes
            admitted = fits or not store_bytes or not self._storing
            self._running += admitted
            self._storing += store_bytes * admitted
        return admitted

    def _end(self, outcome: Outcome, store_bytes: int) -> None:
        self._outcomes.put(outcome)
        with self._changed:
            self._running -= 1
            self._storing -= store_bytes
            self._changed.notify_all()
