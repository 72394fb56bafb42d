"""Deadlines and a circuit breaker around any backend: whatever it does, the caller goes on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import replace
from typing import TypeVar

from sgkv.backends.base import Backend, BackendStats, GetItem, PutItem, Status
from sgkv.backends.bounce import land_all, stand_in_get, stand_in_put
from sgkv.backends.breaker import Breaker, BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.backends.wrapper import Wrapper

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_CLOSE_SECONDS = 2.0
_DROP_SECONDS = 2.0
"""A prefix is dropped while an engine's scheduler waits."""
_EVIDENCE = 0.1
"""A caller that waits less than this share of our own deadline proves nothing when it gives up."""
_FAILURES = frozenset({Status.TIMEOUT, Status.ERROR})
_WRITES = frozenset({"put", "delete", "delete_prefix", "quarantine"})


class Guarded(Wrapper):
    """Every call to `inner` runs in a pool, under a deadline, if the breaker lets it.

    Past the deadline the answer is TIMEOUT (False for `contains`) and the caller's buffers are its
    own again; the thread stays with the call until that returns. With `max_inflight` of them
    occupied the answer is TIMEOUT at once: there is no queue. An exception of `inner` is ERROR.
    A call counts as failed for the breaker when it ran out of time, raised, or answered TIMEOUT or
    ERROR for at least half of its items, or for a probe. Calls that change the backend have a breaker
    of their own: a disk that turned read-only can still be read.

    `scan` and `stats` go to `inner` directly: the first is for people, the second does no I/O.
    """

    def __init__(
        self,
        inner: Backend,
        *,
        contains_deadline: float = 0.05,
        get_deadline: float = 5.0,
        put_deadline: float = 30.0,
        breaker: BreakerPolicy | None = None,
        max_inflight: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Deadlines in seconds; of these and the one a caller brings the nearer holds.

        `contains_deadline` is also for `touch`, `pin`, `quarantine` and `delete`, which come in the
        middle of reads; `put_deadline` for `delete_prefix`, which takes two seconds at most.
        `clock` gives monotonic seconds to the breaker.
        """
        super().__init__(inner)
        self.capabilities = replace(inner.capabilities, abandonable=True)
        self._contains_deadline = contains_deadline
        self._get_deadline = get_deadline
        self._put_deadline = put_deadline
        self._drop_deadline = min(put_deadline, _DROP_SECONDS)
        self._reading = Breaker(breaker or BreakerPolicy(), clock)
        self._writing = Breaker(breaker or BreakerPolicy(), clock)
        self._pool = WorkerPool(max_inflight, f"sgkv-{inner.name}-guard", backlog=0)
        self._lock = threading.Lock()
        self._counters = dict.fromkeys(("timeouts", "errors", "saturated", "refused"), 0)
        self._said: set[tuple[str, type[BaseException]]] = set()
        self._closed = False

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        limit, patient = _nearer(self._contains_deadline, deadline)
        answer = self._call("contains", lambda: self.inner.probe(keys, deadline), limit, patient=patient)
        return ([False] * len(keys), answer) if isinstance(answer, Status) else answer

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        deadline = deadline or Deadline(self._put_deadline)
        return self._batch(
            "put", len(items), lambda: self._put(items, deadline), self._put_deadline, deadline
        )

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        deadline = deadline or Deadline(self._get_deadline)
        return self._batch(
            "get", len(items), lambda: self._get(items, deadline), self._get_deadline, deadline
        )

    def delete(self, keys: Sequence[str]) -> list[bool]:
        return self._ask("delete", lambda: self.inner.delete(keys), [False] * len(keys))

    def delete_prefix(self, prefix: str) -> bool:
        return self._ask(
            "delete_prefix", lambda: self.inner.delete_prefix(prefix), False, self._drop_deadline
        )

    def quarantine(self, keys: Sequence[str]) -> None:
        self._ask("quarantine", lambda: self.inner.quarantine(keys), None)

    def touch(self, keys: Sequence[str]) -> None:
        self._ask("touch", lambda: self.inner.touch(keys), None)

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        return self._ask("pin", lambda: self.inner.pin(keys, pinned), [False] * len(keys))

    def stats(self) -> BackendStats:
        """Of `inner`, with counters `guard_*` and `breaker_opened`, and each breaker's state (`State`)."""
        stats = self.inner.stats()
        with self._lock:
            own = {f"guard_{name}": count for name, count in self._counters.items()}
        own["breaker_opened"] = self._reading.opened + self._writing.opened
        states = {"read_breaker": int(self._reading.state), "write_breaker": int(self._writing.state)}
        bounds = self._pool.bounds("guard") | {"guard_inflight": self._pool.busy}
        return replace(
            stats,
            bounds=stats.bounds | bounds,
            counters=stats.counters | own,
            states=stats.states | states,
        )

    def close(self) -> None:
        """Close `inner`; wait for it and for calls under way, two seconds in all."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        closer = WorkerPool(1, f"sgkv-{self.name}-close", backlog=0)
        closing = closer.submit(self.inner.close)
        ends = time.monotonic() + _CLOSE_SECONDS
        if closing is None:  # no threads left to start: without one that could be abandoned, then
            self.inner.close()
        elif wait([closing], _CLOSE_SECONDS).done:
            self._note("close", closing.exception())
            closer.close(_CLOSE_SECONDS)
        self._pool.close(max(0.0, ends - time.monotonic()))

    def _put(self, items: Sequence[PutItem], deadline: Deadline) -> list[Status]:
        if self.inner.capabilities.abandonable:
            return self.inner.put(items, deadline)
        statuses = self.inner.put([stand_in_put(item, deadline) for item in items], deadline)
        late = deadline.over  # then a stand-in refused to be filled
        return [Status.TIMEOUT if late and status is Status.ERROR else status for status in statuses]

    def _get(self, items: Sequence[GetItem], deadline: Deadline) -> list[Status]:
        if self.inner.capabilities.abandonable:
            return self.inner.get(items, deadline)
        owns = [stand_in_get(item) for item in items]
        return land_all(items, owns, self.inner.get(owns, deadline), deadline)

    def _batch(
        self, op: str, items: int, run: Callable[[], list[Status]], own_limit: float, deadline: Deadline
    ) -> list[Status]:
        if deadline.over:
            return [Status.TIMEOUT] * items
        limit, patient = _nearer(own_limit, deadline)
        answer = self._call(op, run, limit, patient=patient)
        if answer is Status.TIMEOUT:
            deadline.cancel()
        return [answer] * items if isinstance(answer, Status) else answer

    def _ask(self, op: str, run: Callable[[], _T], otherwise: _T, limit: float | None = None) -> _T:
        answer = self._call(op, run, limit or self._contains_deadline, patient=True)
        return otherwise if isinstance(answer, Status) else answer

    def _call(self, op: str, run: Callable[[], _T], limit: float, *, patient: bool) -> _T | Status:
        """What `run` answers within `limit` seconds, or why it does not."""
        if self._closed:
            return Status.CLOSED
        breaker = self._writing if op in _WRITES else self._reading
        ticket = breaker.admit()
        if ticket is None:
            return self._count("refused", Status.BREAKER_OPEN)
        answers: list[_T] = []
        future = self._pool.submit(lambda: answers.append(run()))
        if future is None:
            breaker.skip(ticket)
            return self._count("saturated", Status.TIMEOUT)
        finished = bool(wait([future], limit).done)
        succeeded = finished and future.exception() is None and not _failed(answers[0])
        if succeeded or patient:
            self._record(breaker, ticket, op, succeeded)
        else:
            breaker.skip(ticket)
        if not finished:
            future.cancel()
            return self._count("timeouts", Status.TIMEOUT)
        if self._note(op, future.exception()):
            return self._count("errors", Status.ERROR)
        return answers[0]

    def _record(self, breaker: Breaker, ticket: int, op: str, succeeded: bool) -> None:
        opened = breaker.opened
        breaker.record(ticket, succeeded)
        if breaker.opened != opened:
            what = "writes" if breaker is self._writing else "reads"
            log.warning("%s: %s keep failing, %s last; they are refused for a while", self.name, what, op)

    def _count(self, name: str, status: Status) -> Status:
        with self._lock:
            self._counters[name] += 1
        return status

    def _note(self, op: str, error: BaseException | None) -> bool:
        """Whether there is an error; each kind of it is logged once."""
        if error is None:
            return False
        kind = (op, type(error))
        if kind not in self._said:
            self._said.add(kind)
            log.warning("%s: %s raised (said once; see counter guard_errors)", self.name, op, exc_info=error)
        return True


def _nearer(own_limit: float, deadline: Deadline | None) -> tuple[float, bool]:
    """Seconds to wait, and whether a caller that waits so long proves something when it gives up."""
    left = None if deadline is None else deadline.remaining()
    limit = own_limit if left is None else min(own_limit, left)
    return limit, limit >= _EVIDENCE * own_limit


def _failed(answer: object) -> bool:
    """Whether at least half of a batch's statuses, or that of a probe, speak against the backend."""
    if isinstance(answer, tuple):
        return answer[1] in _FAILURES
    if not isinstance(answer, list) or not answer:
        return False
    return 2 * sum(status in _FAILURES for status in answer) >= len(answer)
