"""Child processes that cost a few milliseconds, and their deaths."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

from sgkv.backends import failpoints

_HUNG_MS = 20_000


def fork(run: Callable[[], None]) -> int:
    """Run in a child that ends right afterwards; whoever calls has no threads. The child's pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not return into its parent's code
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def reap(pid: int, kill_after: float | None = None) -> bool:
    """Wait for a child, and kill it after so many seconds: True if SIGKILL ended it.

    Raises where it failed, or hung.
    """
    waiting = select.poll()
    handle = os.pidfd_open(pid)
    waiting.register(handle, select.POLLIN)
    try:
        ended = waiting.poll(_HUNG_MS if kill_after is None else kill_after * 1000)
        if not ended:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(handle)
    if (not ended and kill_after is None) or code not in (0, -signal.SIGKILL):
        raise AssertionError(f"a child {'hung' if not ended else f'ended with {code}'}")
    return code == -signal.SIGKILL


def die_at(point: str, passes: int, also: Callable[[str], None] = lambda name: None) -> None:
    """Arm this process: SIGKILL when `point` is passed for the n-th time. `also` sees every pass."""
    left = passes

    def action(name: str) -> None:
        nonlocal left
        also(name)
        if name == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm(action)
