"""What a shell offers: completion, and a help text for everything that can be typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from sgkv.cli.app import app


def everything(command, path: str) -> Iterator[tuple[str, str | None]]:
    """(what is typed, its help text) for each command, option and argument below a command."""
    yield path, command.help
    for parameter in command.params:
        yield f"{path} {parameter.name}", parameter.help
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from everything(below, f"{path} {name}")


def test_all_that_can_be_typed_is_explained() -> None:
    found = dict(everything(get_command(app), "sgkv"))
    assert "sgkv inspect blob key" in found
    assert [typed for typed, text in found.items() if not text] == []


@pytest.mark.parametrize(("line", "offered"), [("sgkv why", "why-miss"), ("sgkv inspect ", "blob")])
def test_a_shell_completes_commands(line: str, offered: str) -> None:
    asked = {"_SGKV_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    script = Path(sys.executable).with_name("sgkv")
    done = subprocess.run(
        [script], env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert offered in done.stdout.split()
