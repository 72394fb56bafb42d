"""What a forked child must not do with the library: call it (see `Client.foreign`), or clean up after it."""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def spare_children() -> None:
    """Let children forked from now on end without the library's clean-up, which crashes there.

    Seen: a child without the library's threads gets SIGSEGV in static destructors when it exits. What
    the C library calls at exit it calls in reverse order; so a child registers `_exit` right after the
    fork, which runs after all that Python and the child's own code have to do, and before those.
    """
    os.register_at_fork(after_in_child=_leave_before_destructors)


def _leave_before_destructors() -> None:
    libc = ctypes.CDLL(None)
    # on_exit(3) hands the exit status to a function (int, void *): `_exit` takes the first of them.
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)  # noqa: SLF001
