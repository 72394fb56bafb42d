"""Every command that the documentation shows is one that the command line takes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from sgkv.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(page: Path) -> Iterator[str]:
    """Of blocks, those that stand on lines of their own; in text, those that stand between backticks."""
    text = page.read_text()
    indented = "\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE))
    for block in [*FENCED.findall(text), indented]:
        for line in block.replace("\\\n", " ").splitlines():
            if line.lstrip("$ ").startswith("sgkv "):
                yield line.lstrip("$ ")
    yield from (" ".join(found.split()) for found in re.findall(r"`(sgkv [^`]+)`", FENCED.sub("", text)))


def taken(command, words: list[str]) -> None:
    """Raises where a command or an option is not known. What values are is not looked at."""
    parser = command.make_parser(command.context_class(command, info_name=command.name))
    _, rest, _ = parser.parse_args(words)
    if isinstance(command, TyperGroup) and rest:
        taken(command.commands[rest[0]], rest[1:])


SHOWN = sorted({(page.name, line) for page in PAGES for line in commands(page)})


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_a_command_that_is_shown_exists(page: str, line: str) -> None:
    taken(get_command(app), shlex.split(line, comments=True)[1:])


def test_commands_that_do_not_exist_would_be_found() -> None:
    assert len(SHOWN) > 50
    for line in ("sgkv inspekt tier disk", "sgkv inspect tier disk --colour"):
        with pytest.raises(Exception, match=r"inspekt|--colour"):
            taken(get_command(app), shlex.split(line)[1:])


def test_the_quickstart_works_as_it_is_written(tmp_path: Path) -> None:
    """But for what is installed (tests/packaging does that) and the server (tests/e2e and demo do)."""
    blocks = SHELL.findall((ROOT / "docs" / "quickstart.md").read_text())
    lines = [line for line in "".join(blocks).splitlines() if not line.startswith("pip install")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sgkv.yaml: ok" in done.stdout
    assert "--hicache-storage-backend sgkv" in done.stdout
