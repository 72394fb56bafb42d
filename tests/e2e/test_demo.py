"""The demo as its user runs it, and the verdict it ends with."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sgkv.demo.results import Run, complaints
from sgkv.testing.client import Generation

NAMES = ["cold", "warm", "restarted", "emptied"]
KEYS = {
    "name",
    "prompt_tokens",
    "cached_tokens",
    "full_page_tokens",
    "cached_by_tier",
    "ttft_s",
    "equal_output",
}


@pytest.mark.server
@pytest.mark.timeout(600)
def test_a_killed_engine_finds_its_prompt_again(tmp_path: Path):
    command = [sys.executable, "-m", "sgkv", "demo", "--json", "demo.json"]
    demo = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    result = json.loads((tmp_path / "demo.json").read_text())
    assert result["engine"] == "sglang"
    assert [run["name"] for run in result["runs"]] == NAMES
    assert all(run.keys() == KEYS and run["equal_output"] for run in result["runs"])
    cold, warm, restarted, emptied = result["runs"]
    assert cold["prompt_tokens"] >= 2000
    assert cold["cached_tokens"] == emptied["cached_tokens"] == 0
    for run in (warm, restarted):
        assert run["cached_tokens"] >= 0.9 * run["full_page_tokens"]
        assert run["cached_by_tier"]["storage"] == run["cached_tokens"]
        assert run["ttft_s"] < cold["ttft_s"]


def run(name: str, cached: int, *, equal: bool = True) -> Run:
    """A run of a prompt of 2,100 tokens."""
    answer = Generation((1, 2), (-0.5, -0.25), "ab", 2100, cached, {"storage": cached}, 0.1, 0.2)
    return Run(name, answer, 2048, equal, Counter())


def test_nothing_to_complain_about():
    assert not complaints([run("cold", 0), run("warm", 2048), run("restarted", 1844), run("emptied", 0)])


@pytest.mark.parametrize("name", NAMES)
def test_another_output_is_a_failure(name: str):
    runs = [run(each, 2048, equal=each != name) for each in NAMES]
    (complaint,) = complaints(runs)
    assert name in complaint


def test_a_restart_that_finds_less_than_nine_tenths_is_a_failure():
    (complaint,) = complaints([run("cold", 0), run("warm", 2048), run("restarted", 1843), run("emptied", 0)])
    assert "1843 of 2048" in complaint
