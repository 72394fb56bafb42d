"""The library's numbers (`types.h` of Mooncake 0.3.13, seen to be returned), and what they mean to us."""

from __future__ import annotations

from sgkv.backends.base import Status

OK = 0
NO_SPACE = -200
INVALID = -600
NOT_READY = -703
NOT_FOUND = -704
EXISTS = -705
LEASE_EXPIRED = -707
REPLICA_GONE = -712
TRANSFER_FAILED = -800

_READ = {
    INVALID: Status.SHORT,
    NOT_READY: Status.ABSENT,
    NOT_FOUND: Status.ABSENT,
    LEASE_EXPIRED: Status.ABSENT,
    REPLICA_GONE: Status.ABSENT,
}
_START = {OK: Status.OK, EXISTS: Status.EXISTS, NO_SPACE: Status.FULL}
_RPC_FAILED = frozenset({-900, -901})
_BEFORE_ANY_TRANSFER = _RPC_FAILED | {INVALID, NOT_READY, NOT_FOUND, REPLICA_GONE}
"""After one of these no byte of the range is on its way. RPCs of a read come before its transfers."""


def read_status(code: int, size: int) -> Status:
    """Of one range of a read: it is OK only when exactly `size` bytes came.

    -600 is what a range past the end of a blob gives; every other argument has been checked before.
    """
    if code == size:
        return Status.OK
    return Status.SHORT if code >= 0 else _READ.get(code, Status.ERROR)


def start_status(code: int) -> Status:
    """Of an attempt to begin a blob."""
    return _START.get(code, Status.ERROR)


def unheard(code: int) -> bool:
    """Whether the master may not have heard: then the library keeps its own side as it was."""
    return code in _RPC_FAILED


def settled(code: int) -> bool:
    """Whether nothing can land any more for a range that ended with `code`.

    Seen: a read from a stopped node ended with -800 after its timeout, and when the node went on a minute
    later, its bytes were still written to where they had been wanted.
    """
    return code >= 0 or code in _BEFORE_ANY_TRANSFER
