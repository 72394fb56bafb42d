"""Rounds of existence checks, for the keys that nothing is known of."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.known import KnownKeys
from sgkv.backends.s3.objects import Objects
from sgkv.backends.workers import WorkerPool, spread_until

_ANSWERED = frozenset({Status.OK, Status.ABSENT})


class Prober:
    """Any thread."""

    def __init__(self, objects: Objects, known: KnownKeys, pool: WorkerPool, limit: float) -> None:
        """`limit` in seconds for a round whose caller sets none."""
        self._objects = objects
        self._known = known
        self._pool = pool
        self._limit = limit

    def probe(self, keys: Sequence[str], deadline: Deadline | None) -> tuple[list[bool], Status]:
        """Which keys are there, and OK or the reason for which some could not be asked for."""
        known = self._known.presence(keys)
        unknown = [at for at, there in enumerate(known) if there is None]
        statuses = self._heads([keys[at] for at in unknown], deadline) if unknown else []
        for at, status in zip(unknown, statuses, strict=True):
            known[at] = status is Status.OK
        failure = next((status for status in statuses if status not in _ANSWERED), Status.OK)
        return [bool(there) for there in known], failure

    def _heads(self, keys: Sequence[str], deadline: Deadline | None) -> list[Status]:
        statuses = [Status.TIMEOUT] * len(keys)
        # Of its own: a probe fills no buffers, and must not end what else its caller's deadline is for.
        left = None if deadline is None else deadline.remaining()
        own = Deadline(self._limit if left is None else left)

        def ask(at: int) -> None:
            statuses[at] = self._objects.head(keys[at], own)

        spread_until(self._pool, len(keys), ask, self._pool.threads, own)
        return list(statuses)
