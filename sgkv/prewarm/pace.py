"""How fast a run may go, how long it keeps trying, and how it is told to stop."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sgkv.prewarm.outcomes import Ended

_BURST_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_FAILURES_IN_A_ROW = 20


class Bandwidth:
    """A token bucket over bytes: each claim is told once how long to wait, so that nobody polls."""

    def __init__(self, bytes_a_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        if bytes_a_second <= 0:
            raise ValueError(f"a bandwidth is positive, got {bytes_a_second}")
        self._rate = bytes_a_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock()

    def claim(self, size: int) -> float:
        """Set `size` bytes aside; seconds until they may move. Up to a second of idling is made up for."""
        with self._lock:
            now = self._clock()
            start = max(self._free_at, now - _BURST_SECONDS)
            self._free_at = start + size / self._rate
            return max(0.0, start - now)


@dataclass(slots=True)
class Attempt:
    """One try at an item."""

    number: int
    pause: float
    """Seconds before the next one; who tries may ask for more, as a server does by Retry-After."""


class Control:
    """Whether the run goes on. Any thread; every wait of a run is one of these and ends with `stop`."""

    def __init__(
        self,
        *,
        bandwidth: Bandwidth | None = None,
        patience: float = 300.0,
        attempts: int = 6,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The run gives up when tries have failed for `patience` seconds, or 20 items in a row, without a
        success in between.

        An item fails after `attempts` tries. `clock` gives monotonic seconds.
        """
        self._bandwidth = bandwidth
        self._patience = patience
        self._attempts = attempts
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failures = 0
        self._failing_since: float | None = None
        self.ended = Ended.COMPLETE
        self.retries = 0

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self, why: Ended) -> None:
        """End the run after what is under way; the first reason counts. Not from a signal handler."""
        if not self._stop.is_set():
            self.ended = why
            self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Pause; False where the run was stopped meanwhile."""
        return not self._stop.wait(seconds) if seconds > 0 else not self.stopped

    def admit(self, size: int) -> bool:
        """Wait until the bandwidth has room for `size` bytes; False where the run was stopped."""
        return self.wait(self._bandwidth.claim(size) if self._bandwidth else 0.0)

    def attempts(self) -> Iterator[Attempt]:
        """Tries at one item, with growing pauses between them; ends with the tries, or with the run."""
        for number in range(self._attempts):
            if self.stopped:
                return
            longest = min(_FIRST_PAUSE * 2**number, _LONGEST_PAUSE)
            attempt = Attempt(number, random.uniform(longest / 2, longest))  # noqa: S311 - jitter
            yield attempt
            self._note_failure()
            if number + 1 == self._attempts or not self.wait(attempt.pause):
                return
            with self._lock:
                self.retries += 1

    def succeeded(self) -> None:
        """An item went well, so that it makes sense to go on."""
        with self._lock:
            self._failures = 0
            self._failing_since = None

    def failed(self) -> None:
        """An item ran out of tries."""
        with self._lock:
            self._failures += 1
            too_many = self._failures >= _FAILURES_IN_A_ROW
        if too_many:
            self.stop(Ended.GAVE_UP)

    def _note_failure(self) -> None:
        with self._lock:
            now = self._clock()
            self._failing_since = now if self._failing_since is None else self._failing_since
            too_long = now - self._failing_since > self._patience
        if too_long:
            self.stop(Ended.GAVE_UP)
