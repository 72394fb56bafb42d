"""`sgkv control` against a real controller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.control.wire import Progress
from tests.control.conftest import DIGEST_A, HASHES, TOKENS, Controller, report, token_of

runner = CliRunner()


@pytest.fixture
def prompt(tmp_path: Path) -> str:
    path = tmp_path / "prompt.json"
    path.write_text(json.dumps(TOKENS))
    return str(path)


@pytest.fixture
def told(fleet: Controller, monkeypatch):
    """What a command says, and its exit code."""
    monkeypatch.setenv("SGKV_CONTROL_URL", fleet.url)

    def run(*words: str, who: str = "admin") -> tuple[int, object]:
        monkeypatch.setenv("SGKV_CONTROL_TOKEN", token_of(who))
        done = runner.invoke(app, ["control", *words])
        return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr

    return run


def test_questions(told, prompt: str, tmp_path: Path) -> None:
    by_hashes = tmp_path / "hashes.json"
    by_hashes.write_text(json.dumps(HASHES))
    for file in (prompt, str(by_hashes)):
        code, view = told("lookup", DIGEST_A, file)
        assert (code, [one["pages"] for one in view["matches"]]) == (0, [8, 3])
    assert [one["name"] for one in told("show", "instances")[1]] == ["one", "two"]
    assert told("show", "namespaces", who="team-b")[1][0]["tenant"] == "team-b"


def test_orders(told, fleet: Controller, prompt: str) -> None:
    code, pin = told("pin", DIGEST_A, prompt, "--for", "60", "--instance", "one")
    assert (code, pin["pages"]) == (0, 8)
    code, operation = told("move", DIGEST_A, prompt, "one", "two", "--key", "mine")
    assert (code, operation["state"]) == (0, "running")
    assert told("move", DIGEST_A, prompt, "one", "two", "--key", "mine")[1]["id"] == operation["id"]
    orders = fleet.report(report("one", sequence=1)).commands
    fleet.report(report("one", sequence=2, progress=[Progress(one.id, "failed", why="no") for one in orders]))
    assert told("operation", operation["id"], "--wait")[0] == 1
    assert told("clear", "--namespace", DIGEST_A, "--prompt", prompt, "--instance", "two")[0] == 0
    assert told("unpin", pin["id"])[0] == 0
    assert len(told("show", "operations")[1]) == 4


def test_mistakes(told, prompt: str, tmp_path: Path, monkeypatch) -> None:
    assert told("clear", "--tenant", "team-a", who="reader")[0] == 1
    assert told("clear")[0] == 2
    assert told("show", "everything")[0] == 2
    assert told("lookup", "no digest", prompt)[0] == 2
    assert told("lookup", DIGEST_A, str(tmp_path / "nothing.json"))[0] == 2
    monkeypatch.delenv("SGKV_CONTROL_TOKEN")
    assert runner.invoke(app, ["control", "show", "pins"]).exit_code == 2


def test_a_controller_is_not_started_open_to_all(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("- {name: me, token: long enough to be one, role: admin}\n")
    path.chmod(0o600)
    done = runner.invoke(app, ["control", "serve", "--tokens", str(path), "--host", "0.0.0.0"])
    assert (done.exit_code, "not loopback" in done.stderr) == (2, True)
    path.chmod(0o644)
    assert runner.invoke(app, ["control", "serve", "--tokens", str(path)]).exit_code == 2
