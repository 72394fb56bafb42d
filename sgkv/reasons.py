"""Why a page was not served. Every read ends as a hit or with exactly one of these."""

from __future__ import annotations

import enum

from sgkv.backends.base import Status


class MissReason(enum.Enum):
    """Label of the miss metric and vocabulary of the logs; docs/architecture.md explains them."""

    ABSENT = "absent"
    """No tier has it."""
    EXPIRED = "expired"
    CORRUPT = "corrupt"
    """Truncated, or a header or checksum that does not match; the blob is taken out of use."""
    FOREIGN = "foreign"
    """A whole blob under this key that belongs to other pages or another namespace; also taken out."""
    LAYOUT = "layout"
    """Readable, but not convertible to what the engine's pool holds."""
    LOCKED = "locked"
    """Sealed with a key that is not here, or not sealed where it must be; the blob stays."""
    TIMEOUT = "timeout"
    BREAKER_OPEN = "breaker_open"
    """The tier failed repeatedly and is being left alone for a while."""
    TIER_ERROR = "tier_error"
    NODE_AWAY = "node_away"
    """The node's daemon does not answer, or refuses us; it is tried again in the background."""
    NOT_WORTH_LOADING = "not_worth_loading"
    """It is there, and computing it again is quicker; see `sgkv.decide`."""
    HELD_BACK = "held_back"
    """It is there, and the rollout does not load it for this prompt, or for a while for none."""
    SIDE_POOL = "side_pool"
    """The KV is there, but not the state of another pool without which it cannot be used."""
    SUSPENDED = "suspended"
    """The weights are being updated, or were without a flush of the engine's own cache; or it flushes."""
    CLOSED = "closed"
    UNSUPPORTED = "unsupported"
    """A pool or call this version cannot serve; logged once with the details."""
    INTERNAL = "internal"
    """An error of ours, logged with a traceback; the engine recomputes."""

    __hash__ = object.__hash__
    """By identity, as they compare: Enum's own is a Python function, and reasons are counted page by page."""


_BY_STATUS = {
    Status.ABSENT: MissReason.ABSENT,
    Status.SHORT: MissReason.CORRUPT,
    Status.CORRUPT: MissReason.CORRUPT,
    Status.LOCKED: MissReason.LOCKED,
    Status.TIMEOUT: MissReason.TIMEOUT,
    Status.BREAKER_OPEN: MissReason.BREAKER_OPEN,
    Status.CLOSED: MissReason.CLOSED,
}


DOWN = frozenset({Status.TIMEOUT, Status.BREAKER_OPEN, Status.CLOSED})
"""After these a tier is not asked again in the same call."""


def reason_of(status: Status) -> MissReason:
    """The miss reason of a failed backend read."""
    return _BY_STATUS.get(status, MissReason.TIER_ERROR)
