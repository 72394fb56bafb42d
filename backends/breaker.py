"""A circuit breaker: stop asking what does not answer, and find out when it does again."""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


class BreakerState(enum.IntEnum):
    """The numbers are what a gauge shows."""

    CLOSED = 0
    """Calls go through."""
    HALF_OPEN = 1
    """One call is on trial; the others are refused."""
    OPEN = 2
    """Calls are refused until the cool-down is over."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When to open, and for how long."""

    consecutive_failures: int = 5
    failure_share: float = 0.5
    """Opens when this share of the last `window` calls failed."""
    window: int = 20
    cooldown_s: float = 1.0
    """Doubles with every trial that fails, up to `max_cooldown_s`."""
    max_cooldown_s: float = 60.0

    def __post_init__(self) -> None:
        if self.consecutive_failures < 1 or self.window < 1:
            raise ValueError("consecutive_failures and window must be at least 1")
        if not 0 < self.failure_share <= 1:
            raise ValueError(f"failure_share must be in (0, 1], got {self.failure_share}")
        if not 0 < self.cooldown_s <= self.max_cooldown_s:
            raise ValueError("cooldown_s must be positive and not above max_cooldown_s")


class Breaker:
    """Thread-safe. Each admitted call ends with one `record` or `skip` of its ticket."""

    def __init__(self, policy: BreakerPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self.opened = 0
        """How often it went from closed or half-open to open."""
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._state = BreakerState.CLOSED
        self._era = 0
        """Changes with the state: a call admitted in an earlier era says nothing about this one."""
        self._recent: deque[bool] = deque(maxlen=policy.window)
        self._failed_in_a_row = 0
        self._cooldown = policy.cooldown_s
        self._opens_until = 0.0

    @property
    def state(self) -> BreakerState:
        return self._state

    def admit(self) -> int | None:
        """A ticket for one call, or None: do not call."""
        with self._lock:
            if self._state is BreakerState.OPEN and self._clock() >= self._opens_until:
                self._enter(BreakerState.HALF_OPEN)
                return self._era
            return self._era if self._state is BreakerState.CLOSED else None

    def record(self, ticket: int, succeeded: bool) -> None:
        """How the call of a ticket went."""
        with self._lock:
            if ticket != self._era:
                return
            if self._state is BreakerState.HALF_OPEN:
                self._end_trial(succeeded)
            elif self._state is BreakerState.CLOSED:
                self._note(succeeded)

    def skip(self, ticket: int) -> None:
        """The call of a ticket told nothing, e.g. it never began. A trial is put off."""
        with self._lock:
            if ticket == self._era and self._state is BreakerState.HALF_OPEN:
                self._open()

    def _note(self, succeeded: bool) -> None:
        self._recent.append(succeeded)
        self._failed_in_a_row = 0 if succeeded else self._failed_in_a_row + 1
        failed = self._recent.count(False)
        often = len(self._recent) == self._policy.window and failed >= (
            self._policy.failure_share * self._policy.window
        )
        if often or self._failed_in_a_row >= self._policy.consecutive_failures:
            self._open()

    def _end_trial(self, succeeded: bool) -> None:
        if succeeded:
            self._cooldown = self._policy.cooldown_s
            self._enter(BreakerState.CLOSED)
            return
        self._cooldown = min(2 * self._cooldown, self._policy.max_cooldown_s)
        self._open()

    def _open(self) -> None:
        self.opened += 1
        self._opens_until = self._clock() + self._cooldown
        self._enter(BreakerState.OPEN)

    def _enter(self, state: BreakerState) -> None:
        self._state = state
        self._era += 1
        self._recent.clear()
        self._failed_in_a_row = 0
