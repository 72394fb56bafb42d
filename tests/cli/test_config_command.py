"""`sgkv config show` and `sgkv config validate`, as a shell sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.config import Config

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SGKV_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sgkv.yaml"
    text = f"tenant: a\ntiers:\n  - {{type: cpu, capacity: 64MiB}}\n  - {{type: disk, path: {tmp_path}/kv}}\n"
    path.write_text(text)
    return path


def test_show_prints_a_file_that_says_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGKV__TTL", "7d")
    shown = runner.invoke(app, ["config", "show", "--config", str(file)])
    assert shown.exit_code == 0
    config = Config.model_validate(yaml.safe_load(shown.stdout))
    assert (config.tenant, config.ttl, config.tiers[0].capacity) == ("a", 604800, 64 << 20)


def test_show_says_where_each_value_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGKV__TTL", "7d")
    lines = runner.invoke(app, ["config", "show", "--config", str(file)]).stdout.splitlines()
    assert f'tenant: "a"  # {file}' in lines
    assert 'ttl: "7d"  # SGKV__TTL' in lines
    assert "chunk_tokens: 256  # default" in lines
    assert '  max_bytes: "auto"  # default; here 32 MiB' in lines


def test_show_as_json_is_for_programs(file: Path) -> None:
    shown = json.loads(
        runner.invoke(app, ["config", "show", "--config", str(file), "--format", "json"]).stdout
    )
    assert shown["values"]["tenant"] == "a"
    assert shown["resolved"]["write_behind.max_bytes"] == 32 << 20
    assert shown["origins"]["tiers.0.capacity"] == str(file)
    assert shown["origins"]["tiers.0.deadlines.get"] == "default"


def test_show_takes_the_file_that_the_environment_names(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGKV_CONFIG", str(file))
    assert 'tenant: "a"' in runner.invoke(app, ["config", "show"]).stdout


def test_validate_accepts_what_a_server_would(file: Path) -> None:
    checked = runner.invoke(app, ["config", "validate", str(file)])
    assert (checked.exit_code, checked.stdout) == (0, f"{file}: ok\n")


def test_validate_lists_everything_that_is_wrong(file: Path) -> None:
    file.write_text("tennant: a\ntiers: [{type: cpu, capacity: 8G}]\n")
    checked = runner.invoke(app, ["config", "validate", str(file)])
    assert checked.exit_code == 2
    assert f'tennant ({file}): unknown key; did you mean "tenant"?' in checked.stderr
    assert f"tiers.0.capacity ({file}): 'G' is not a unit of size" in checked.stderr


def test_validate_asks_the_machine_unless_told_not_to(file: Path) -> None:
    file.write_text("tiers: [{type: cpu, capacity: 1PiB}]")
    assert "more than this machine's memory" in runner.invoke(app, ["config", "validate", str(file)]).stderr
    assert runner.invoke(app, ["config", "validate", str(file), "--no-machine"]).exit_code == 0


def test_validate_judges_the_file_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGKV__TTL", "never")
    assert runner.invoke(app, ["config", "validate", str(file)]).exit_code == 0
    shown = runner.invoke(app, ["config", "show", "--config", str(file)])
    assert shown.exit_code == 2
    assert "ttl (SGKV__TTL): 'never' is not a duration" in shown.stderr
