"""docs/prewarm.md names what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from sgkv.cli.prewarm import prewarm_app
from sgkv.prewarm.outcomes import PROBLEMS, Ended, Outcome

TEXT = (Path(__file__).parents[2] / "docs" / "prewarm.md").read_text()
OF_SERVERS = {"--enable-priority-scheduling", "--enable-cache-report", "--enable-metrics"}


def test_every_outcome_is_explained_and_problems_are_called_so():
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| (.*) \|$", TEXT, re.MULTILINE)
    said = {Outcome(name): text for names, text in rows for name in re.findall(r"`([a-z_]+)`", names)}
    assert set(said) == set(Outcome)
    assert {outcome for outcome, text in said.items() if "A problem" in text} == PROBLEMS


def test_every_end_is_named():
    assert all(f"`{ended.value}`" in TEXT for ended in Ended)


def test_every_option_is_named_and_what_is_named_is_one():
    commands = typer.main.get_command(prewarm_app).commands.values()
    there = {option for command in commands for parameter in command.params for option in parameter.opts}
    named = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    assert named - there == OF_SERVERS
    missing = {option for option in there if option.startswith("--")} - named
    assert missing == set()
