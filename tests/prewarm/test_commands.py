"""`sgkv prewarm ...` as a shell sees it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from sgkv.cli.app import app
from sgkv.prewarm.journal import Journal
from sgkv.testing.waiting import wait_until
from tests.prewarm.blobs import OTHER, SIZE, contents, disk, fill, flip, key_of, path_of
from tests.prewarm.openai_server import Server, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "scripts").glob("prewarm_*.py"))


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SGKV_CONFIG", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Memory, a near and a far disk."""
    tiers = [
        {"type": "cpu", "capacity": "64MiB"},
        *({"type": "disk", "name": name, "path": str(tmp_path / name), "capacity": "64MiB", "min_free": 0}
          for name in ("near", "far")),
    ]  # fmt: skip
    path = tmp_path / "sgkv.yaml"
    path.write_text(yaml.safe_dump({"tiers": tiers}))
    return path


def prewarm(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["prewarm", *map(str, arguments), "--quiet"])


def stored(folder: Path) -> set[str]:
    tier = disk(folder)
    keys = set(contents(tier))
    tier.close()
    return keys


def filled(folder: Path, count: int, namespace: str | None = None) -> list[str]:
    tier = disk(folder)
    keys = fill(tier, count, namespace) if namespace else fill(tier, count)
    tier.close()
    return keys


class TestCopies:
    def test_pull_copies_from_the_last_tier_to_the_first_below_memory(self, config, tmp_path):
        keys = filled(tmp_path / "far", 5)
        done = prewarm("pull", "--config", config, "--json", tmp_path / "out" / "report.json")
        assert done.exit_code == 0, done.output
        assert stored(tmp_path / "near") == set(keys)
        report = json.loads((tmp_path / "out" / "report.json").read_text())
        assert report["outcomes"] == {"copied": {"items": 5, "bytes": 5 * SIZE}}
        assert (report["ended"], report["exit_code"], report["problems"]) == ("complete", 0, [])
        assert report["copies"][0]["from"] == "far"
        assert "copied" in done.stdout

    def test_push_copies_the_other_way(self, config, tmp_path):
        keys = filled(tmp_path / "near", 3)
        assert prewarm("push", "--config", config).exit_code == 0
        assert stored(tmp_path / "far") == set(keys)

    def test_tiers_by_name_and_of_another_file(self, config, tmp_path):
        keys = filled(tmp_path / "near", 2)
        other = tmp_path / "other.yaml"
        place = {"type": "disk", "path": str(tmp_path / "elsewhere"), "capacity": "64MiB", "min_free": 0}
        other.write_text(yaml.safe_dump({"tiers": [place]}))
        assert prewarm("push", "--config", config, "--from", "near", "--to", f"{other}:disk").exit_code == 0
        assert stored(tmp_path / "elsewhere") == set(keys)

    def test_sync_both_ways(self, config, tmp_path):
        filled(tmp_path / "near", 4)
        filled(tmp_path / "far", 3, OTHER)
        done = prewarm("sync", "--config", config, "--from", "near", "--to", "far", "--both")
        assert done.exit_code == 0, done.output
        assert stored(tmp_path / "near") == stored(tmp_path / "far")
        assert len(stored(tmp_path / "near")) == 7

    def test_a_limit_is_of_both_ways_together(self, config, tmp_path):
        filled(tmp_path / "near", 2)
        filled(tmp_path / "far", 3, OTHER)
        sync = ["sync", "--config", config, "--from", "near", "--to", "far", "--both"]
        done = prewarm(*sync, "--max-bytes", 3 * SIZE, "--json", tmp_path / "report.json")
        assert done.exit_code == 0, done.output
        assert (len(stored(tmp_path / "near")), len(stored(tmp_path / "far"))) == (3, 5)
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["ended"] == "limit"
        assert report["outcomes"]["left"] == {"items": 2, "bytes": 2 * SIZE}

    def test_a_selection_and_limits(self, config, tmp_path):
        filled(tmp_path / "far", 6)
        (tmp_path / "keys").write_text(f"# mine\n{key_of(2)}\n\n{key_of(4)}\n")
        assert prewarm("pull", "--config", config, "--keys", tmp_path / "keys").exit_code == 0
        assert stored(tmp_path / "near") == {key_of(2), key_of(4)}
        done = prewarm("pull", "--config", config, "--max-bytes", SIZE, "--bandwidth", "10MB/s")
        assert done.exit_code == 0
        assert len(stored(tmp_path / "near")) == 3
        assert prewarm("pull", "--config", config, "--namespace", OTHER).exit_code == 0
        assert prewarm("pull", "--config", config, "--hottest", "1KiB").exit_code == 0
        assert len(stored(tmp_path / "near")) == 3

    def test_a_dry_run(self, config, tmp_path):
        filled(tmp_path / "far", 2)
        done = prewarm("pull", "--config", config, "--dry-run")
        assert (done.exit_code, stored(tmp_path / "near")) == (0, set())
        assert "planned" in done.stdout
        assert "dry run" in done.stdout

    def test_a_bad_blob_is_exit_code_1(self, config, tmp_path):
        filled(tmp_path / "far", 2)
        flip(path_of(tmp_path / "far", key_of(0)), 5000)
        done = prewarm("pull", "--config", config)
        assert done.exit_code == 1
        assert f"corrupt: {key_of(0)}" in done.stdout


class TestBadUsage:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--to", "cpu"], "memory inside the server's own process"),
            (["--to", "nowhere"], "there is no tier 'nowhere'; the configuration has cpu, near, far"),
            (["--from", "near", "--to", "near"], "are the same place"),
            (["--to", "No Such Name"], "names no tier"),
            (["--keys", "missing"], "cannot be read"),
            (["--max-bytes", "many"], "many"),
            (["--patience", "soon"], "soon"),
            (["--bandwidth", "0"], "nothing would ever move"),
            (["--workers", "0"], "workers"),
        ],
    )
    def test_is_exit_code_2_and_says_what_to_do(self, config, arguments, says):
        done = prewarm("pull", "--config", config, *arguments)
        assert done.exit_code == 2
        assert says in " ".join(done.output.split())

    def test_a_configuration_that_cannot_be_used(self, tmp_path):
        (tmp_path / "bad.yaml").write_text("tiers: [{type: tape}]")
        assert prewarm("pull", "--config", tmp_path / "bad.yaml").exit_code == 2

    def test_one_tier_below_memory_is_no_pair(self, tmp_path):
        (tmp_path / "one.yaml").write_text(f"tiers: [{{type: disk, path: {tmp_path}/kv, capacity: 64MiB}}]")
        done = prewarm("pull", "--config", tmp_path / "one.yaml")
        assert done.exit_code == 2
        assert "--from and --to" in done.output

    def test_a_report_that_cannot_be_written(self, config, tmp_path):
        filled(tmp_path / "far", 1)
        (tmp_path / "file").write_text("")
        done = prewarm("pull", "--config", config, "--json", tmp_path / "file" / "report.json")
        assert done.exit_code == 2
        assert stored(tmp_path / "near") == set()

    def test_a_library_that_is_missing(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "httpx", None)
        (tmp_path / "p.txt").write_text("a")
        done = prewarm("compute", tmp_path / "p.txt")
        assert done.exit_code == 2
        assert "sgkv[prewarm]" in done.output

    def test_a_key_file_of_something_else(self, config, tmp_path):
        (tmp_path / "keys").write_text("../../etc/passwd\n")
        done = prewarm("pull", "--config", config, "--keys", tmp_path / "keys")
        assert done.exit_code == 2
        assert "is no key" in done.output


class TestVerify:
    def test_finds_and_deletes_what_is_bad(self, config, tmp_path):
        filled(tmp_path / "far", 3)
        flip(path_of(tmp_path / "far", key_of(1)), 100)
        done = prewarm("verify", "--config", config, "--tier", "far")
        assert done.exit_code == 1
        assert len(stored(tmp_path / "far")) == 3
        report = tmp_path / "report.json"
        done = prewarm("verify", "--config", config, "--tier", "far", "--delete", "--json", report)
        assert done.exit_code == 1
        assert stored(tmp_path / "far") == {key_of(0), key_of(2)}
        assert json.loads(report.read_text())["deleted"] == {"corrupt": {"items": 1, "bytes": SIZE}}
        assert prewarm("verify", "--config", config, "--tier", "far").exit_code == 0

    def test_goes_on_where_a_limit_ended_it_unless_told_otherwise(self, config, tmp_path):
        filled(tmp_path / "far", 4)
        report = tmp_path / "report.json"

        def outcomes(*arguments: object) -> dict[str, int]:
            done = prewarm("verify", "--config", config, "--tier", "far", "--json", report, *arguments)
            assert done.exit_code == 0, done.output
            found = json.loads(report.read_text())["outcomes"]
            return {name: amount["items"] for name, amount in found.items()}

        assert outcomes("--max-bytes", SIZE) == {"good": 1, "left": 3}
        assert outcomes("--max-bytes", SIZE) == {"good": 1, "left": 2, "done_before": 1}
        assert outcomes("--fresh", "--dry-run") == {"planned": 4}
        assert outcomes("--dry-run") == {"planned": 2, "done_before": 2}
        assert outcomes("--fresh") == {"good": 4}


class TestCompute:
    @pytest.fixture
    def server(self) -> Iterator[Server]:
        with serving(Server(written=[0, 4096])) as server:
            yield server

    def test_sends_each_prompt_once_however_often_it_runs(self, server, tmp_path):
        (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n{"messages": []}\n')
        (tmp_path / "doc.txt").write_text("a document")
        arguments = ["compute", tmp_path / "prompts.jsonl", tmp_path / "doc.txt", "--url", server.url]
        report = tmp_path / "report.json"
        done = prewarm(*arguments, "--wait-stored", "0s", "--json", report)
        assert done.exit_code == 0, done.output
        assert len(server.posts) == 3
        assert json.loads(report.read_text())["tokens"]["prompt"] == 300
        assert (tmp_path / "prompts.jsonl.prewarmed").exists()
        assert prewarm(*arguments).exit_code == 0
        assert len(server.posts) == 3
        assert prewarm(*arguments, "--fresh", "--wait-stored", "0s").exit_code == 0
        assert len(server.posts) == 6

    def test_a_priority_of_ones_own(self, server, tmp_path):
        (tmp_path / "p.txt").write_text("a\nb\n")
        arguments = ["compute", tmp_path / "p.txt", "--lines", "--url", server.url, "--wait-stored", "0s"]
        assert prewarm(*arguments, "--priority", "-7").exit_code == 0
        assert [body["priority"] for body in server.bodies()] == [-7, -7]
        assert prewarm(*arguments, "--priority", "urgent").exit_code == 2

    def test_a_file_that_is_not_there(self, server, tmp_path):
        assert prewarm("compute", tmp_path / "missing.jsonl", "--url", server.url).exit_code == 2

    @pytest.mark.parametrize("url", ["localhost", "http://host:port"])
    def test_an_address_that_is_none(self, tmp_path, url):
        (tmp_path / "p.txt").write_text("a")
        done = prewarm("compute", tmp_path / "p.txt", "--url", url)
        assert done.exit_code == 2
        assert "is no address" in done.output

    def test_state_that_cannot_be_kept_ends_the_run_with_a_report(self, server, tmp_path, monkeypatch):
        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Journal, "add", full)
        (tmp_path / "p.txt").write_text("a\nb\n")
        report = tmp_path / "report.json"
        done = prewarm("compute", tmp_path / "p.txt", "--lines", "--url", server.url, "--json", report)
        assert done.exit_code == 3
        assert "No space left" in done.output
        assert json.loads(report.read_text())["ended"] == "gave_up"


class TestProcesses:
    """What only a process of its own can show: signals, kills, scripts."""

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sgkv", "prewarm", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def files(self, folder: Path) -> list[Path]:
        return [path for path in (folder / "blobs").rglob("*") if path.is_file()]

    def test_a_pull_that_is_killed_goes_on(self, config, tmp_path):
        keys = filled(tmp_path / "far", 60)
        slow = ["pull", "--config", config, "--bandwidth", 20 * SIZE]
        first = self.start(*slow)
        wait_until(lambda: len(self.files(tmp_path / "near")) >= 5, "the first blobs", 60)
        first.kill()
        first.communicate()
        before = len(self.files(tmp_path / "near"))
        assert before < 60
        done = prewarm("pull", "--config", config, "--json", tmp_path / "report.json")
        assert done.exit_code == 0, done.output
        outcomes = json.loads((tmp_path / "report.json").read_text())["outcomes"]
        assert (outcomes["present"]["items"], outcomes["copied"]["items"]) == (before, 60 - before)
        assert stored(tmp_path / "near") == set(keys)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_it_with_a_report(self, config, tmp_path, number):
        filled(tmp_path / "far", 60)
        slow = ["pull", "--config", config, "--bandwidth", 20 * SIZE, "--json", tmp_path / "report.json"]
        process = self.start(*slow)
        wait_until(lambda: self.files(tmp_path / "near"), "the first blob", 60)
        process.send_signal(number)
        _, shown = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "copying" in shown
        report = json.loads((tmp_path / "report.json").read_text())
        assert (report["ended"], report["exit_code"]) == ("interrupted", 130)
        items = {name: amount["items"] for name, amount in report["outcomes"].items()}
        assert items["copied"] == len(self.files(tmp_path / "near"))
        assert sum(items.values()) == 60

    def test_a_second_signal_waits_for_nothing(self, tmp_path):
        (tmp_path / "p.txt").write_text("a\nb\nc\n")
        answer = threading.Event()
        with serving(Server(before_reply=lambda number: answer.wait(60))) as server:
            process = self.start("compute", tmp_path / "p.txt", "--lines", "--url", server.url, "--quiet")
            wait_until(lambda: len(server.posts) == 2, "two prompts under way", 60)
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=10)
            answer.set()
        assert process.returncode == -signal.SIGINT

    def test_prompts_that_were_answered_before_a_kill_are_not_sent_again(self, tmp_path):
        prompts, workers, kills = 24, 2, 3
        (tmp_path / "p.txt").write_text("".join(f"prompt {number}\n" for number in range(prompts)))
        with serving() as server:
            arguments = ["compute", tmp_path / "p.txt", "--lines", "--url", server.url, "--workers", workers]
            arguments += ["--bandwidth", "100", "--quiet"]  # ten prompts a second
            for _ in range(kills):
                sent = len(server.posts) + 3
                process = self.start(*arguments)
                wait_until(lambda sent=sent: len(server.posts) >= sent, "some prompts", 60)
                process.kill()
                process.communicate()
            done = prewarm(*arguments[:-3])
            assert done.exit_code == 0, done.output
            assert len({body["prompt"] for body in server.bodies()}) == prompts
            assert prompts <= len(server.posts) <= prompts + kills * workers

    @pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
    def test_every_script_is_the_command_of_its_name(self, script):
        done = subprocess.run(
            [sys.executable, str(script), "--help"], capture_output=True, text=True, timeout=60, check=True
        )
        assert "--dry-run" in done.stdout

    def test_there_is_a_script_for_every_command(self):
        shown = CliRunner().invoke(app, ["prewarm", "--help"]).output
        names = [path.stem.removeprefix("prewarm_") for path in SCRIPTS]
        assert names == ["compute", "pull", "push", "sync", "verify"]
        assert all(name in shown for name in names)

    def test_a_script_works(self, config, tmp_path):
        keys = filled(tmp_path / "far", 3)
        command = [sys.executable, str(ROOT / "scripts" / "prewarm_pull.py"), "--config", str(config)]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
        assert stored(tmp_path / "near") == set(keys)
