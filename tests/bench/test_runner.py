"""The command: exit codes, the file it writes, and whose settings count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.bench import run, runner
from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.cli.app import app

GOOD = Record("startup", "good", 1.0, "s", bars=(Bar("value", "<=", 2),))
BAD = Record("startup", "bad", 3.0, "s", bars=(Bar("value", "<=", 2),))


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts made-up results in the place of a suite: a bar cannot be missed on purpose with a real one."""

    def replace(*results: Record | Exception) -> None:
        def measure(name: str, effort: Effort, scratch: Scratch) -> Iterator[Record]:
            for result in results:
                if isinstance(result, Exception):
                    raise result
                yield result

        monkeypatch.setattr(runner, "measure", measure)

    return replace


def test_kept_bars_are_success(suite: Callable[..., None], tmp_path: Path) -> None:
    suite(GOOD)
    assert run(["startup"], tmp_path / "out.json") == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert list(document) == ["machine", "records"]
    assert document["records"] == [GOOD.as_json()]
    assert {"cpu", "cores", "memory_bytes", "load_average", "sgkv", "sglang"} <= document["machine"].keys()


def test_a_missed_bar_is_exit_code_1(
    suite: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(GOOD, BAD)
    assert run(["startup"], tmp_path / "out.json") == 1
    assert "startup/bad" in capsys.readouterr().out
    assert [record["ok"] for record in json.loads((tmp_path / "out.json").read_text())["records"]] == [
        True,
        False,
    ]


def test_a_suite_that_breaks_off_says_why_and_keeps_what_it_has(
    suite: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(GOOD, BenchError("no room on the disk"))
    assert run(["startup", "hash"], tmp_path / "out.json") == 1
    assert "no room on the disk" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "out.json").read_text())["records"]) == 2


def test_an_unknown_suite_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["startup", "nonsense"], tmp_path / "out.json") == 2
    said = capsys.readouterr().out
    assert "nonsense" in said
    assert "hicache" in said
    assert not (tmp_path / "out.json").exists()


def test_the_users_own_settings_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def measure(name: str, effort: Effort, scratch: Scratch) -> Iterator[Record]:
        seen.append({variable for variable in os.environ if variable.startswith("SGKV_")})
        yield GOOD

    monkeypatch.setattr(runner, "measure", measure)
    monkeypatch.setenv("SGKV_CONFIG", "/nowhere.yaml")
    monkeypatch.setenv("SGKV__CHUNK_TOKENS", "64")
    assert run(["startup"], None) == 0
    assert not seen[0] & {"SGKV_CONFIG", "SGKV__CHUNK_TOKENS"}
    assert os.environ["SGKV__CHUNK_TOKENS"] == "64"


def test_the_command_passes_suites_and_file_on(suite: Callable[..., None], tmp_path: Path) -> None:
    suite(BAD)
    result = CliRunner().invoke(app, ["bench", "startup", "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 1
    assert (tmp_path / "out.json").exists()


def test_without_sglang_peers_are_null_and_suites_that_need_it_say_so(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["sglang"] = None
from pathlib import Path
from sgkv.bench import run
from sgkv.bench.effort import Effort
sys.exit(run(["lookup", "hash"], Path({str(tmp_path / "out.json")!r}), effort=Effort(scale=0.01, rounds=1)))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert "SGLang is not installed" in done.stdout
    records = json.loads((tmp_path / "out.json").read_text())["records"]
    assert {record["suite"] for record in records} == {"hash"}
    assert {record["ratio_to_peer"] for record in records} == {None}


def test_scratch_is_gone_after_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Scratch() as scratch:
        first, second = scratch.disk(), scratch.disk()
        assert first != second
        assert first.is_relative_to(tmp_path)
        (first / "file").write_text("x")
        memory = scratch.memory()
    assert not list(tmp_path.iterdir())
    assert not memory.exists()
