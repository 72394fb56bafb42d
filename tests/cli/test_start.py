"""What the command costs to start, and that both ways to start it are the same."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

from sgkv import __version__
from sgkv.cli import main

HEAVY = ("torch", "pydantic", "yaml", "prometheus_client", "sgkv.config", "sgkv.store")


def python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_the_module_runs_the_command() -> None:
    assert python("-m", "sgkv", "version").startswith(f"sgkv {__version__}, Python 3.")


def test_the_script_is_the_same_command() -> None:
    (script,) = entry_points(group="console_scripts", name="sgkv")
    assert script.load() is main


def test_help_loads_nothing_that_it_does_not_print() -> None:
    code = "import sys, sgkv.cli; print([name for name in sys.argv[1:] if name in sys.modules])"
    assert python("-c", code, *HEAVY) == "[]\n"


def test_help_names_every_command() -> None:
    for command in ("config", "sglang-args", "demo", "bench", "version"):
        assert command in python("-m", "sgkv", "--help")
