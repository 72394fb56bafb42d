"""Waiting for what can only be asked, such as a counter of another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(observe: Callable[[], T], what: str, timeout: float = 60.0) -> T:
    """Call `observe` until its answer is true, less and less often; returns that answer.

    Raises `TimeoutError` that names `what` and the last answer.
    """
    deadline, pause = time.monotonic() + timeout, 0.01
    while not (answer := observe()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}; last seen: {answer!r}")
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
    return answer
