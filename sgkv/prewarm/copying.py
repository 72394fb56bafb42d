"""Copying verified blobs from one tier into another."""

from __future__ import annotations

from dataclasses import dataclass

from sgkv.backends.base import Backend, BlobInfo, PutItem, Status
from sgkv.prewarm.amounts import total
from sgkv.prewarm.fetching import Fetcher
from sgkv.prewarm.outcomes import Ended, Outcome
from sgkv.prewarm.pace import Control
from sgkv.prewarm.planning import Limits, plan_copy
from sgkv.prewarm.running import Buffers, Run, Verdict
from sgkv.prewarm.selection import Selection

_PASSING = frozenset({Status.TIMEOUT, Status.BREAKER_OPEN, Status.ERROR})
"""Worth another try; anything else stays as it is."""


def copy_blobs(source: Backend, target: Backend, selection: Selection, limits: Limits, run: Run) -> int:
    """Copy what is selected and missing; `run` counts. Returns the bytes that it set out to copy.

    What the target has is the only record of what is done: a run that was killed leaves whole blobs
    and nothing else, and the next one goes on with what is missing. Raises UnavailableError where a
    tier does not answer while the run is planned.
    """
    run.listener.prepare("listing")
    plan = plan_copy(source, target, selection, limits, run.control)
    run.tally.add_all(Outcome.PRESENT, plan.present)
    run.tally.add_all(Outcome.LEFT, plan.left)
    run.note_copy(source.name, target.name, plan.namespaces)
    copier = Copier(Fetcher(source, run.control, Buffers()), target, run.control)
    run.over("copying", plan.todo, lambda blob: blob.key, copier.copy)
    return total(plan.todo).bytes


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies one blob a call; any thread."""

    fetcher: Fetcher
    target: Backend
    control: Control

    def copy(self, blob: BlobInfo) -> Verdict:
        """Read, verify, publish."""
        fetched = self.fetcher.fetch(blob)
        if fetched.outcome is not Outcome.GOOD:
            return Verdict(fetched.outcome, fetched.why)
        expires_at = fetched.header.expires_at if fetched.header else 0
        return self._publish(PutItem(blob.key, [fetched.raw], expires_at=expires_at))

    def _publish(self, item: PutItem) -> Verdict:
        status = Status.ERROR
        for _ in self.control.attempts():
            (status,) = self.target.put([item])
            if status not in _PASSING:
                break
        if status.ok:
            return Verdict(Outcome.COPIED if status is Status.OK else Outcome.PRESENT)
        if status is Status.FULL:
            self.control.stop(Ended.GAVE_UP)
        elif self.control.stopped:
            return Verdict(Outcome.LEFT)
        return Verdict(Outcome.FAILED, f"cannot be written: {status.value}")
