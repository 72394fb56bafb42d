"""The command: chosen suites, one after the other, to the terminal and to a file."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.machine import machine_facts
from sgkv.bench.records import Record
from sgkv.bench.report import show, write_json
from sgkv.bench.scratch import Scratch
from sgkv.bench.suites import SUITES, measure
from sgkv.config.sources import FILE_VARIABLE

_WIDTH = 120
"""Columns where no terminal says how many there are."""
_USAGE = 2
"""Exit code for a suite that does not exist."""


def run(suites: Sequence[str], json_path: Path | None, *, effort: Effort | None = None) -> int:
    """Measure `suites` and print them; write every record to `json_path` too.

    Returns the exit code: 0, or 1 where a bar is missed or a suite could not be measured (which is
    said on the terminal), or 2 for an unknown suite. Settings of the user's own store do not count.
    """
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    unknown = [suite for suite in suites if suite not in SUITES]
    if unknown:
        console.print(f"There is no suite {', '.join(unknown)}. Choose from: {' '.join(SUITES)}")
        return _USAGE
    machine, records = machine_facts(), list[Record]()
    with _undisturbed(), Scratch() as scratch:
        complete = [_measured(console, suite, records, effort or Effort(), scratch) for suite in suites]
    if json_path is not None:
        write_json(json_path, machine, records)
    missed = [f"{record.suite}/{record.case}" for record in records if record.ok is False]
    if missed:
        console.print(f"[red]Bars missed:[/] {', '.join(missed)}")
    return 1 if missed or not all(complete) else 0


def _measured(console: Console, suite: str, records: list[Record], effort: Effort, scratch: Scratch) -> bool:
    """Add the suite's records to `records`; False when it broke off."""
    before = len(records)
    try:
        with console.status(f"{suite} ..."):
            records += measure(suite, effort, scratch)
    except BenchError as error:
        console.print(f"[red]{suite} was not measured to the end:[/] {error}")
        return False
    finally:
        if len(records) > before:
            show(console, suite, records[before:])
    return True


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hide the user's settings from the stores measured here, and logs and warnings from the tables."""
    mine = {name: os.environ.pop(name) for name in list(os.environ) if _is_setting(name)}
    logger = logging.getLogger("sgkv")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        os.environ.update(mine)


def _is_setting(name: str) -> bool:
    return name == FILE_VARIABLE or name.startswith("SGKV__")
