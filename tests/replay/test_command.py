"""`sgkv replay`: a record a policy, capacity, bandwidth and gate; bad input is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.replay.figures import FiguresError, load_figures
from sgkv.replay.generate import Mix, generate
from sgkv.replay.trace import TraceError, read_trace


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["replay", *arguments])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": r.at * 1000, "input_length": r.tokens, "output_length": r.output, "hash_ids": r.blocks}
        for r in generate(Mix.CHAT, 300)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_combination_is_a_record(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke(str(trace), "--json", str(out), "--gbps", "10", "--gbps", "100", "--capacity", "10")
    assert result.exit_code == 0, result.output
    records = json.loads(out.read_text())["records"]
    seen = {(r["policy"], r["gbps"], r["gate"]) for r in records}
    bounded = {
        (p, g, s)
        for p in ("always", "lru", "s3fifo", "reuse", "belady")
        for g in (10, 100)
        for s in ("on", "off")
    }
    assert seen == bounded | {("none", 10, "off"), ("none", 100, "off")}
    assert len(records) == len(seen)
    rates = {r["policy"]: r["token_hit_rate"] for r in records}
    assert rates["none"] == 0 < rates["lru"] <= rates["belady"] <= rates["always"]
    assert all(0 < r["ttft_p50_s"] <= r["ttft_p99_s"] for r in records)


def test_a_part_of_the_trace_is_a_trace_of_its_own(trace: Path, tmp_path: Path) -> None:
    def half(*arguments: str) -> int:
        out = tmp_path / "half.json"
        result = invoke(str(trace), "--policy", "always", "--json", str(out), *arguments)
        assert result.exit_code == 0, result.output
        return json.loads(out.read_text())["records"][0]["requests"]

    assert half("--begin", "25", "--end", "50") == 75
    assert half("--begin", "50") == 150
    assert invoke(str(trace), "--begin", "50", "--end", "50").exit_code == 2


def test_made_up_traffic_is_the_same_each_time() -> None:
    assert generate(Mix.AGENT, 100) == generate(Mix.AGENT, 100)
    assert generate(Mix.AGENT, 100, seed=1) != generate(Mix.AGENT, 100)
    result = invoke("--generate", "rag", "--policy", "lru", "--capacity", "5")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not a request"),
        ('{"timestamp": 1}', "not a request"),
        (
            '{"timestamp": 1, "input_length": 5000, "output_length": 1, "hash_ids": [1]}',
            "do not make 1 blocks",
        ),
        ("", "no request"),
    ],
)
def test_a_bad_trace_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    with pytest.raises(TraceError, match=message):
        read_trace(path)
    result = invoke(str(path))
    assert result.exit_code == 2


def test_one_of_trace_and_mix_is_needed(trace: Path) -> None:
    assert invoke().exit_code == 2
    assert invoke(str(trace), "--generate", "chat").exit_code == 2


def test_unknown_models_and_figures_are_refused(trace: Path, tmp_path: Path) -> None:
    assert invoke(str(trace), "--model", "other").exit_code == 2
    bad = tmp_path / "figures.yaml"
    bad.write_text("models: {}\nmedia: {}\n")
    with pytest.raises(FiguresError, match="models"):
        load_figures(bad)
