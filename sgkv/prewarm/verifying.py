"""Reading every blob of a tier, and taking out what no reader could use."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from sgkv.backends.base import Backend, BlobInfo
from sgkv.prewarm.amounts import Amount, total, within
from sgkv.prewarm.fetching import Fetcher
from sgkv.prewarm.journal import Journal
from sgkv.prewarm.outcomes import Ended, Outcome, Tally
from sgkv.prewarm.planning import by_namespace
from sgkv.prewarm.running import Buffers, Run, Verdict
from sgkv.prewarm.selection import Selection, listed


def verify_blobs(
    tier: Backend,
    selection: Selection,
    journal: Journal,
    run: Run,
    *,
    max_bytes: int | None = None,
    delete: frozenset[Outcome] = frozenset(),
) -> None:
    """Read what is selected and not in `journal`; `run` counts. Blobs with an outcome of `delete` go.

    The journal is removed once nothing is left to do, so that the next run reads everything again.
    """
    run.listener.prepare("listing")
    blobs = listed(tier, selection, lambda: run.control.stopped)
    todo = [blob for blob in blobs if digest_of(blob) not in journal]
    now = todo[: within(todo, max_bytes)]
    everything, lacking, chosen = map(total, (blobs, todo, now))
    run.tally.add_all(Outcome.DONE_BEFORE, everything.minus(lacking))
    run.tally.add_all(Outcome.LEFT, lacking.minus(chosen))
    verifier = Verifier(Fetcher(tier, run.control, Buffers()), tier, journal, delete)
    run.over("verifying", now, lambda blob: blob.key, verifier.verify)
    run.facts["namespaces"] = {name: amount._asdict() for name, amount in by_namespace(blobs).items()}
    run.facts["deleted"] = {name: amount._asdict() for name, amount in verifier.deleted.amounts().items()}
    complete = run.control.ended is Ended.COMPLETE and run.tally.amount(Outcome.LEFT) == Amount()
    if complete and not run.dry_run:
        journal.remove()


def digest_of(blob: BlobInfo) -> str:
    """Names a blob by key and size; its time changes when an engine reads it from a disk."""
    return hashlib.sha256(f"{blob.key} {blob.size}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies one blob a call; any thread."""

    fetcher: Fetcher
    tier: Backend
    journal: Journal
    delete: frozenset[Outcome]
    deleted: Tally = field(default_factory=Tally)
    """Counts what was deleted, by the outcome that it had."""

    def verify(self, blob: BlobInfo) -> Verdict:
        """Read, judge, and delete what is asked for. What is bad is read again by the next run."""
        fetched = self.fetcher.fetch(blob)
        if fetched.outcome in self.delete and self.tier.delete([blob.key]) == [True]:
            self.deleted.add(fetched.outcome, blob.size)
        elif fetched.outcome in (Outcome.GOOD, Outcome.UNKNOWN_FORMAT):
            self.journal.add(digest_of(blob))
        return Verdict(fetched.outcome, fetched.why)
