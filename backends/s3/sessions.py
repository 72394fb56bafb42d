"""Sessions of directory buckets: opened once, renewed before they end, replaced when rejected."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned
from sgkv.backends.s3.backoff import Backoff
from sgkv.backends.s3.clocks import served_at
from sgkv.backends.s3.replies import Locked
from sgkv.backends.workers import WorkerPool

log = logging.getLogger(__name__)

_RENEW_SHARE, _RENEW_SECONDS = 0.25, 60.0
"""A session is renewed when this share of its life is left, or this long, whichever is less."""
_MARGIN_SHARE, _MARGIN_SECONDS = 0.1, 2.0
"""And no longer used when this is left: a request takes a while to arrive."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A session as the server gave it."""

    keys: ReadOnlyCredentials = field(repr=False)
    seconds: float
    """Of life left when it arrived."""


@dataclass(frozen=True, slots=True)
class _Held:
    keys: ReadOnlyCredentials = field(repr=False)
    renew_at: float
    ends_at: float


def create_session(client: Any, bucket: str) -> Grant:
    """Ask the service for a session.

    Raises botocore's errors, and LookupError and ValueError for an answer that holds none.
    Its life is measured against the server's own clock, so that ours may be wrong.
    """
    answer = client.create_session(Bucket=bucket)
    given = answer.get("Credentials")
    if given is None:
        raise ValueError("an answer that holds no session")
    keys = ReadOnlyCredentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    return Grant(keys, given["Expiration"].timestamp() - served_at(answer))


class SessionKeys:
    """The keys of the current session.

    However many threads find none, one request is made for all of them. From the moment a session is
    due for renewal its keys are still handed out while a thread in the background gets the next.
    After a failure nothing is asked for a moment, longer each time, and callers learn of it at once.
    A session that is refused is replaced; but once the new one is refused just the same, refusals are
    taken for an answer, and the session is kept, for a moment that grows alike.
    """

    session = True

    def __init__(
        self,
        open_one: Callable[[], Grant],
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`open_one` blocks for one request and raises what `create_session` does; `clock` gives seconds.

        `count` is told ``sessions_opened`` and ``sessions_rejected`` as they happen.
        """
        self._open_one = open_one
        self._clock = clock
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._flight: Future[None] | None = None
        self._failure: str | None = None
        self._failures = Backoff(clock)
        self._refusals = Backoff(clock)
        self._on_trial = False
        """Whether the next session, or the one that is held, replaces a refused one and is unproven."""
        self._pool = WorkerPool(1, "sgkv-s3-session", backlog=1)
        self._count = count

    def current(self, deadline: Deadline | None) -> ReadOnlyCredentials:
        held = self._held
        now = self._clock()
        if held is not None and now < held.renew_at:
            return held.keys
        flight = self._start()
        if held is not None and now < held.ends_at:
            return held.keys
        if flight is not None:
            _await(flight, deadline)
        held = self._held
        if held is None or self._clock() >= held.ends_at:
            raise Locked(self._failure or "no session")
        return held.keys

    def reject(self, keys: ReadOnlyCredentials) -> bool:
        with self._lock:
            if self._held is None or self._held.keys is not keys:
                return True  # there is another one already, or it is on its way
            if self._on_trial or self._refusals.pausing:
                self._on_trial = False
                self._refusals.failed()
                return False
            self._held, self._on_trial = None, True
        self._count("sessions_rejected")
        return True

    def retried(self, *, refused: bool) -> None:
        with self._lock:
            self._on_trial = False
        if refused:
            self._refusals.failed()
        else:
            self._refusals.succeeded()

    def close(self) -> None:
        self._pool.close(0.0)

    def _start(self) -> Future[None] | None:
        """The request under way, or a new one; None while a failure is too fresh."""
        with self._lock:
            held, now = self._held, self._clock()
            if self._flight is not None and not self._flight.done():
                return self._flight
            if (held is not None and now < held.renew_at) or self._failures.pausing:
                return None
            self._flight = self._pool.submit(self._renew)
            return self._flight

    def _renew(self) -> None:
        try:
            grant = self._open_one()
        except (BotoCoreError, ClientError, LookupError, RuntimeError, ValueError) as error:
            self._failed(error)
            return
        if grant.seconds <= 0:
            self._failed(ValueError("a session that has ended already"))
            return
        now, life = self._clock(), grant.seconds
        renewal = now + life - min(_RENEW_SECONDS, _RENEW_SHARE * life)
        ends = now + life - min(_MARGIN_SECONDS, _MARGIN_SHARE * life)
        with self._lock:
            self._held = _Held(grant.keys, renewal, ends)
            self._failure = None
        self._failures.succeeded()
        self._count("sessions_opened")

    def _failed(self, error: Exception) -> None:
        self._failures.failed()
        with self._lock:
            said, self._failure = self._failure, f"CreateSession: {error}"
        if said is None:
            log.warning("s3: no session: %s", error)


def _await(flight: Future[None], deadline: Deadline | None) -> None:
    limit = None if deadline is None else deadline.remaining()
    if wait([flight], limit).not_done:
        raise Abandoned
