"""`sgkv keys` from the shell."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.codecs.errors import LockedError
from sgkv.codecs.keys import read_keys

runner = CliRunner()


def keys(*arguments: object, answer: str | None = None) -> tuple[int, str]:
    done = runner.invoke(app, ["keys", *map(str, arguments)], input=answer)
    return done.exit_code, done.output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    assert keys("new", path, "--id", "first")[0] == 0
    return path


def test_only_the_owner_may_read_a_new_file(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert keys("list", file) == (0, "first  current\n")


def test_a_rotated_file_opens_what_was_sealed_before_until_that_key_is_dropped(file: Path) -> None:
    made = read_keys(file).new({})
    assert keys("rotate", file, "--id", "second")[0] == 0
    assert keys("list", file) == (0, "first\nsecond  current\n")
    assert read_keys(file).open(made.key_id, made.wrapped, {}) == made.key
    assert keys("drop", file, "first", answer="n\n")[0] == 1
    assert keys("drop", file, "first", answer="y\n")[0] == 0
    with pytest.raises(LockedError):
        read_keys(file).open(made.key_id, made.wrapped, {})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("new", "{file}"), "there already"),
        (("rotate", "{file}", "--id", "first"), "already"),
        (("rotate", "{file}", "--id", "a b"), "is no id"),
        (("drop", "{file}", "first", "--yes"), "rotate first"),
        (("drop", "{file}", "other", "--yes"), "it has first"),
        (("list", "/nowhere/keys.json"), "cannot be read"),
        (("new", "/nowhere/keys.json"), "cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    arguments: tuple[str, ...], said: str, file: Path
) -> None:
    before = file.read_bytes()
    code, output = keys(*(argument.replace("{file}", str(file)) for argument in arguments))
    assert (code, said in output) == (2, True), output
    assert file.read_bytes() == before


def test_no_command_prints_a_key(file: Path) -> None:
    secret = file.read_text().split('"first": "')[-1][:16]
    assert secret not in keys("list", file)[1] + keys("rotate", file)[1]
