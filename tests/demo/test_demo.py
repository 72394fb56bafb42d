"""The demo itself, on real servers."""

import json
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
