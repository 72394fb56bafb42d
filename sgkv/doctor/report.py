"""Findings for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from sgkv.doctor.finding import Finding, Level

_MARKS = {Level.OK: ("ok", "green"), Level.NOTE: ("note", "yellow"), Level.PROBLEM: ("BAD", "bold red")}


def tell(findings: Iterable[Finding], json_path: Path | None = None) -> int:
    """Print findings as they come, topic by topic. Returns the exit code: 1 where there is a problem."""
    console, told, topic = Console(highlight=False, soft_wrap=True), list[Finding](), ""
    for finding in findings:
        told.append(finding)
        if finding.topic != topic:
            topic = finding.topic
            console.print(Text(topic, style="bold"))
        _print(console, finding)
    problems = sum(finding.level is Level.PROBLEM for finding in told)
    console.print(f"{problems} to mend" if problems else "nothing to mend")
    if json_path is not None:
        document = {"ok": not problems, "findings": [asdict(finding) for finding in told]}
        json_path.write_text(json.dumps(document, indent=2) + "\n")
    return int(problems > 0)


def _print(console: Console, finding: Finding) -> None:
    mark, style = _MARKS[finding.level]
    console.print(Text.assemble("  ", (f"{mark:<5}", style), finding.what))
    if finding.fix:
        console.print(Text.assemble(" " * 7, ("-> ", "cyan"), finding.fix))
