"""What is around every run of `sgkv prewarm`: signals, the bar, the report, the exit code."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import FrameType

import typer

from sgkv.cli.config import USAGE, complain
from sgkv.config import ConfigError
from sgkv.config.units import approximate_size
from sgkv.prewarm.engine import AddressError, EngineError
from sgkv.prewarm.journal import JournalError
from sgkv.prewarm.outcomes import Ended, Report
from sgkv.prewarm.pace import Bandwidth, Control
from sgkv.prewarm.progress import Bars, Silent
from sgkv.prewarm.prompts import PromptError
from sgkv.prewarm.running import Run
from sgkv.prewarm.selection import SelectionError, UnavailableError
from sgkv.prewarm.tiers import TierError

_PROBLEMS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Common:
    """Options of every command."""

    workers: int
    patience: float
    bandwidth: int | None
    dry_run: bool
    json_path: Path | None
    quiet: bool
    attempts: int = 6
    """Tries an item."""


def perform(command: str, common: Common, work: Callable[[Run], None]) -> int:
    """Run `work`, print and write its report. Returns the exit code."""
    control = Control(
        bandwidth=None if common.bandwidth is None else Bandwidth(common.bandwidth),
        patience=common.patience,
        attempts=common.attempts,
    )
    if (reason := _unwritable(common.json_path)) is not None:
        typer.echo(reason, err=True)
        return USAGE
    with _stopping(control), nullcontext(Silent()) if common.quiet else Bars() as listener:
        run = Run(control, listener, common.workers, common.dry_run)
        try:
            work(run)
        except ConfigError as error:
            return complain(error)
        except (AddressError, ImportError, JournalError, PromptError, SelectionError, TierError) as error:
            typer.echo(str(error), err=True)
            return USAGE
        except (EngineError, OSError, UnavailableError) as error:  # such as a disk with no room for state
            typer.echo(str(error), err=True)
            control.stop(Ended.GAVE_UP)
    report = run.report(command)
    typer.echo("\n".join(_lines(report)))
    if common.json_path:
        common.json_path.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return report.exit_code


def _unwritable(path: Path | None) -> str | None:
    """Why no report can be written there: better known before hours of copying than after."""
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        return f"--json {path}: {error.strerror}"
    return None


@contextmanager
def _stopping(control: Control) -> Iterator[None]:
    """SIGINT and SIGTERM end the run after the items under way; a second one ends the process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A handler may take no lock, for the main thread may hold it: a thread does, which this queue wakes.
    arrived: SimpleQueue[bool] = SimpleQueue()

    def wait_for_one() -> None:
        if arrived.get():
            control.stop(Ended.INTERRUPTED)

    def note(number: int, frame: FrameType | None) -> None:
        arrived.put(True)
        signal.signal(number, signal.SIG_DFL)  # an exception would wait for what is under way

    waiting = Thread(target=wait_for_one, name="sgkv-signals", daemon=True)
    waiting.start()
    for number in before:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        arrived.put(False)
        waiting.join()


def _lines(report: Report) -> Iterator[str]:
    dry = ", dry run" if report.dry_run else ""
    yield f"{report.command}: {report.ended.value.replace('_', ' ')} in {report.seconds:.1f} s{dry}"
    for outcome, (items, size) in sorted(report.outcomes.items()):
        yield f"  {outcome.value.replace('_', ' '):<15} {items:>9}  {approximate_size(size)}"
    for problem in report.problems[:_PROBLEMS_SHOWN]:
        yield f"  {problem.outcome.value}: {problem.item} {problem.why}".rstrip()
    more = len(report.problems) - _PROBLEMS_SHOWN
    if more > 0:
        yield f"  ... and {more} more; --json writes them to a file"
