"""`sgkv doctor` from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGKV_CONFIG", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "sgkv.yaml"
    path.write_text(f"tiers: [{{type: disk, path: {tmp_path}/kv, capacity: 512MiB}}]\n")
    return path


def test_findings_for_people_and_for_programs(config: Path, tmp_path: Path) -> None:
    done = runner.invoke(app, ["doctor", "--config", str(config), "--json", str(tmp_path / "out.json")])
    document = json.loads((tmp_path / "out.json").read_text())
    assert done.exit_code == (0 if document["ok"] else 1)
    assert {finding["topic"] for finding in document["findings"]} >= {"installation", "machine", "disks"}
    assert all(finding["what"] in done.stdout for finding in document["findings"])
    assert not (tmp_path / "kv").exists()


def test_something_to_mend_is_exit_code_1(config: Path) -> None:
    config.write_text(config.read_text() + "ttl: 1s\n")
    done = runner.invoke(app, ["doctor", "--config", str(config)])
    assert done.exit_code == 1
    assert "expire before they are written" in done.stdout


def test_a_configuration_that_cannot_be_read_is_exit_code_2(config: Path) -> None:
    config.write_text("teirs: []\n")
    done = runner.invoke(app, ["doctor", "--config", str(config)])
    assert done.exit_code == 2
    assert 'did you mean "tiers"' in done.stderr


def test_a_pool_that_does_not_answer_is_named_unless_it_is_not_asked(config: Path) -> None:
    config.write_text('tiers: [{type: mooncake, master: "127.0.0.1:1", connect_wait: 0}]\n')
    asked = runner.invoke(app, ["doctor", "--config", str(config)])
    assert asked.exit_code == 1
    assert "no master" in asked.stdout
    assert "no master" not in runner.invoke(app, ["doctor", "--config", str(config), "--offline"]).stdout


def test_flags_of_a_server_follow_two_dashes() -> None:
    done = runner.invoke(app, ["doctor", "sglang", "--", "--hicache-storage-backend", "file"])
    assert done.exit_code == 1
    assert "SGLang's 'file'" in done.stdout


@pytest.mark.parametrize("given", [(), ("--server", "http://127.0.0.1:1")])
def test_no_server_is_exit_code_2(given: tuple[str, ...]) -> None:
    assert runner.invoke(app, ["doctor", "sglang", *given]).exit_code == 2
