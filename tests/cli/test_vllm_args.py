"""`sgkv vllm-args`: what is printed can be pasted, and what cannot work is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sgkv.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["vllm-args", *arguments])


def extra(result: Result) -> dict[str, object]:
    flag, value = shlex.split(result.stdout)
    assert flag == "--kv-transfer-config"
    return json.loads(value)["kv_connector_extra_config"]


def test_without_a_file_the_defaults_are_left_to_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGKV_CONFIG", raising=False)
    found = extra(run())
    assert found["secondary_tiers"] == [{"type": "SgkvTier", "module_path": "sgkv.vllm.tier"}]
    assert found["cpu_bytes_to_use"] == 4 << 30


def test_a_file_is_named_and_read_by_vllm_later(tmp_path: Path) -> None:
    file = tmp_path / "sgkv.yaml"
    file.write_text("tiers:\n  - {type: disk, capacity: 1GiB}\n")
    found = extra(run("--config", str(file), "--host-memory", "32GiB"))
    assert found["secondary_tiers"][0]["config"] == str(file)
    assert found["cpu_bytes_to_use"] == 32 << 30


def test_a_bad_file_and_a_bad_size_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "sgkv.yaml"
    file.write_text("tiers: []\nno: 1\n")
    assert run("--config", str(file)).exit_code == 2
    bad = run("--host-memory", "much")
    assert bad.exit_code == 2
    assert "--host-memory" in bad.stderr


def test_the_connector_has_a_role_and_recomputes_what_fails(tmp_path: Path) -> None:
    file = tmp_path / "sgkv.yaml"
    file.write_text("tiers:\n  - {type: disk, capacity: 1GiB}\n")
    _, value = shlex.split(run("--connector", "--role", "kv_producer", "--config", str(file)).stdout)
    found = json.loads(value)
    assert (found["kv_connector"], found["kv_role"]) == ("SgkvConnector", "kv_producer")
    assert found["kv_load_failure_policy"] == "recompute"
    assert found["kv_connector_extra_config"] == {"config": str(file)}
