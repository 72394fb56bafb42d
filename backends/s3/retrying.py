"""Another attempt where it may help, and an end to attempts where it does not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.s3.replies import Locked, Reply

_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_SLOW_DOWN = (429, 503)
_TRANSIENT_CODES = frozenset({"SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted"})
_FIRST_DELAY, _LONGEST_DELAY = 0.05, 1.0
_REFUND = 0.1


class Budget:
    """What all requests of a tier may spend on second attempts.

    Successes earn a tenth of what a retry costs: a server that fails now and then is asked again, and
    one that fails everyone is not asked twice as often as before.
    """

    def __init__(self, most: int = 50) -> None:
        self._lock = threading.Lock()
        self._most = float(most)
        self._left = self._most

    def spend(self) -> bool:
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def earn(self) -> None:
        with self._lock:
            self._left = min(self._most, self._left + _REFUND)


class Attempts:
    """Makes requests until one has an answer that another attempt would not change."""

    def __init__(self, most: int, faults: FaultLog, budget: Budget | None = None) -> None:
        self._most = most
        self._faults = faults
        self._budget = budget or Budget()
        self._closing = threading.Event()

    def of(
        self, op: str, request: Callable[[], Reply], deadline: Deadline | None, *, patient: bool = True
    ) -> Reply | Status:
        """The last reply, or the status to give where there is none.

        Not `patient`: only what the server itself asks for is tried again. A scheduler waits.
        """
        answer: Reply | Status = Status.ERROR
        for attempt in range(self._most):
            answer, again = self._once(op, request, deadline, patient=patient)
            last = attempt + 1 == self._most
            if not again or last or not self._budget.spend() or not self._pause(attempt, deadline):
                break
            self._faults.count("retries")
        return answer

    def close(self) -> None:
        """End the pauses between attempts."""
        self._closing.set()

    def _once(
        self, op: str, request: Callable[[], Reply], deadline: Deadline | None, *, patient: bool
    ) -> tuple[Reply | Status, bool]:
        """An answer, and whether it may be another the next time."""
        self._faults.count(f"requests_{op}")
        try:
            reply = request()
        except Abandoned:
            return Status.TIMEOUT, False
        except Locked as error:  # nothing that a pause of milliseconds would mend
            self._faults.note(op, "locked", str(error))
            return Status.ERROR, False
        except Unreachable as error:
            self._faults.note(op, "silent" if isinstance(error, Silent) else "unreachable", str(error))
            late = deadline is not None and deadline.over
            return (Status.TIMEOUT if late else Status.ERROR), patient and not late
        if reply.status in _TRANSIENT:
            self._faults.note(op, "slow_down" if reply.status in _SLOW_DOWN else "server", str(reply))
        else:
            self._budget.earn()
        return reply, reply.status in _TRANSIENT or reply.code in _TRANSIENT_CODES

    def _pause(self, attempt: int, deadline: Deadline | None) -> bool:
        """Wait with full jitter; False where there is no time for it."""
        delay = random.uniform(0, min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt))  # noqa: S311 - jitter
        left = None if deadline is None else deadline.remaining()
        if left is not None and left <= delay:
            return False
        return not self._closing.wait(delay)
