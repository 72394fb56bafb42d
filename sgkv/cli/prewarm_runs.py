"""What `sgkv prewarm` does with its options: open what they name, run, report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sgkv.cli.prewarm_shell import Common, perform
from sgkv.config import this_machine
from sgkv.prewarm.computing import Asking, compute_prompts, wait_stored
from sgkv.prewarm.copying import copy_blobs
from sgkv.prewarm.engine import Engine, EngineError, EngineFacts
from sgkv.prewarm.journal import Journal
from sgkv.prewarm.outcomes import BAD, Outcome
from sgkv.prewarm.planning import Limits
from sgkv.prewarm.prompts import PromptError, find_prompts
from sgkv.prewarm.running import Run
from sgkv.prewarm.selection import Selection, read_keys
from sgkv.prewarm.tiers import (
    Reachable,
    TierError,
    TierName,
    default_tiers,
    describe,
    find_tier,
    opened,
    same_place,
)
from sgkv.prewarm.verifying import verify_blobs


@dataclass(frozen=True, slots=True)
class Selecting:
    """Which blobs, as options say it."""

    namespaces: Sequence[str] | None
    keys: Path | None
    hottest: int | None

    def selection(self) -> Selection:
        keys = None if self.keys is None else read_keys(self.keys)
        return Selection(frozenset(self.namespaces or ()), keys, self.hottest)


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Of pull, push and sync."""

    command: str
    config: Path | None
    source: str | None
    target: str | None
    selecting: Selecting
    max_bytes: int | None
    hottest_first: bool = False
    both: bool = False


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Of verify."""

    config: Path | None
    tier: str
    selecting: Selecting
    max_bytes: int | None
    delete: bool
    delete_expired: bool
    state: Path | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class ComputeOptions:
    """Of compute."""

    files: Sequence[Path]
    url: str
    model: str | None
    priority: str
    lines: bool
    api_key: str | None
    wait_stored: float
    max_bytes: int | None
    state: Path | None
    fresh: bool


def run_copy(options: CopyOptions, common: Common) -> int:
    """Copy from one tier to another. Returns the exit code."""

    def work(run: Run) -> None:
        source, target = _ends(options)
        selection = options.selecting.selection()
        limits = Limits(options.max_bytes, options.hottest_first)
        with ExitStack() as stack:
            one = stack.enter_context(opened(source, common.workers))
            other = stack.enter_context(opened(target, common.workers))
            moved = copy_blobs(one, other, selection, limits, run)
            if options.both:
                copy_blobs(other, one, selection, limits.beyond(moved), run)

    return perform(options.command, common, work)


def run_verify(options: VerifyOptions, common: Common) -> int:
    """Verify a tier. Returns the exit code."""

    def work(run: Run) -> None:
        tier = find_tier(TierName.parse(options.tier), options.config)
        selection = options.selecting.selection()
        delete = (BAD if options.delete else frozenset()) | (
            {Outcome.EXPIRED} if options.delete_expired else frozenset()
        )
        state = options.state or _default_state(tier)
        with (
            Journal(state, "verify", fresh=options.fresh, dry_run=common.dry_run) as journal,
            opened(tier, common.workers) as backend,
        ):
            run.facts["tier"] = describe(tier)
            verify_blobs(backend, selection, journal, run, max_bytes=options.max_bytes, delete=delete)

    return perform("verify", common, work)


def run_compute(options: ComputeOptions, common: Common) -> int:
    """Send prompts through a server. Returns the exit code."""

    def work(run: Run) -> None:
        state = options.state or options.files[0].with_name(options.files[0].name + ".prewarmed")
        prompts = (prompt for path in options.files for prompt in find_prompts(path, lines=options.lines))
        with (
            Journal(state, "compute", fresh=options.fresh, dry_run=common.dry_run) as journal,
            Engine(options.url, api_key=options.api_key) as engine,
        ):
            facts = _facts(engine, run)
            asking = Asking(options.model, _priority(options.priority, facts))
            before = engine.written_bytes()
            compute_prompts(prompts, engine, facts, journal, run, asking=asking, max_bytes=options.max_bytes)
            if not run.dry_run and run.tally.amount(Outcome.COMPUTED).items:
                wait_stored(engine, before, run, options.wait_stored)

    return perform("compute", common, work)


def _ends(options: CopyOptions) -> tuple[Reachable, Reachable]:
    source, target = options.source, options.target
    if source is None or target is None:
        near, far = default_tiers(options.config)
        pulls = options.command == "pull"
        source, target = source or (far if pulls else near), target or (near if pulls else far)
    one, other = (find_tier(TierName.parse(name), options.config) for name in (source, target))
    if same_place(one, other):
        raise TierError(f"{describe(one)} and {describe(other)} are the same place")
    return one, other


def _default_state(tier: Reachable) -> Path:
    name = hashlib.sha256(describe(tier).encode()).hexdigest()[:16]
    return this_machine().cache_home / "sgkv-prewarm" / f"verify-{name}"


def _facts(engine: Engine, run: Run) -> EngineFacts:
    """What the server says, which may be a while in starting. Raises EngineError."""
    error = EngineError("interrupted")
    for _ in run.control.attempts():
        try:
            return engine.facts()
        except EngineError as failure:
            error = failure
    raise error


def _priority(text: str, facts: EngineFacts) -> int | None:
    if text == "auto":
        return facts.lowest_priority
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise PromptError(f"--priority {text}: write auto, none or a whole number") from error
