"""Records on the terminal and in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sgkv.bench.machine import Fact
from sgkv.bench.records import Record

_VERDICTS = {True: "[green]ok", False: "[red]missed", None: ""}


def show(console: Console, suite: str, records: Sequence[Record]) -> None:
    """One suite as a table."""
    table = Table(title=suite, title_justify="left")
    table.add_column("case", no_wrap=True)
    for heading in ("value", "÷ raw", "cpu ÷ raw", "÷ peer"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bar")
    table.add_column("", no_wrap=True)
    for record in records:
        ratios = (record.ratio_to_raw, record.cpu_ratio_to_raw, record.ratio_to_peer)
        error = "" if record.error is None else f" ± {_figure(record.error)}"
        value = f"{_figure(record.value)}{error} {record.unit}"
        table.add_row(record.case, value, *map(_figure, ratios), record.bar or "", _VERDICTS[record.ok])
    console.print(table)


def write_json(path: Path, machine: dict[str, Fact], records: Sequence[Record]) -> None:
    """The file of `--json`; its form is described in docs/benchmarks.md."""
    document = {"machine": machine, "records": [record.as_json() for record in records]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _figure(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3g}"
