"""The demo itself, on real servers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sgkv.demo import run_demo

pytestmark = pytest.mark.server


@pytest.mark.timeout(900)
def test_a_prompt_survives_its_engine(tmp_path: Path):
    written = tmp_path / "demo.json"
    assert run_demo(json_path=written, folder=tmp_path / "cache", baseline_prompts=1) == 0
    result = json.loads(written.read_text())
    runs = {run["name"]: run for run in result["runs"]}
    cached = {name: run["cached_by_tier"].get("storage", 0) for name, run in runs.items()}
    assert cached == {"cold": 0, "warm": 2048, "restarted": 2048, "emptied": 0}
    assert all(run["equal_output"] for run in runs.values())
    assert result["bytes_moved"]["warm"]["read_cpu"] == result["bytes_moved"]["restarted"]["read_disk"]
    assert result["baseline"]["prompts"] == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["demo-model"]


@pytest.mark.timeout(900)
def test_vllm_from_the_shell(tmp_path: Path):
    """In `.venv-vllm`; which engine finds what the other wrote is played in tests/cross."""
    written = tmp_path / "demo.json"
    command = [sys.executable, "-m", "sgkv", "demo", "--engine", "vllm", "--json", str(written)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(written.read_text())
    runs = {run["name"]: run for run in result["runs"]}
    assert (result["engine"], list(runs)) == ("vllm", ["cold", "warm", "restarted", "emptied"])
    assert all(run["equal_output"] for run in runs.values())
    assert runs["restarted"]["cached_tokens"] == runs["restarted"]["full_page_tokens"] == 2048
    assert runs["emptied"]["cached_tokens"] == 0
