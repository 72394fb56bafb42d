"""A real SGLang computes prompts into its store; what it stored travels to another node, and is served."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.testing.models import write_model
from sgkv.testing.s3 import tier_settings
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until
from tests.e2e.rig import Settings, full_tokens, prompt, settings

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
PAGE, PROMPTS = 64, 6
DOCUMENT = "".join(f"line {number} of a document that many will ask about\n" for number in range(30))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prewarm")


@pytest.fixture(scope="module")
def make_server(home: Path):
    """A server over a folder of its own below `home`, not started yet."""
    model = write_model(home / "model", "llama")

    def make(node: str, *extra_args: str) -> SglangServer:
        return SglangServer(
            model,
            log_path=home / f"{node}.log",
            page_size=PAGE,
            metrics=True,
            storage="sgkv",
            storage_config=settings(home / node),
            extra_args=extra_args,
        )

    return make


@pytest.fixture(scope="module")
def prompts(home: Path) -> Path:
    lines = [
        {"prompt": prompt(1)},
        {"prompt": prompt(2), "max_tokens": 500},
        {"prompt": prompt(3)},
        {"prompt": prompt(4)},
        {"messages": [{"role": "user", "content": DOCUMENT}]},
        {"text": DOCUMENT + "and then"},
    ]
    path = home / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def prewarm(report: Path, *arguments: object) -> dict[str, object]:
    done = CliRunner().invoke(app, ["prewarm", *map(str, arguments), "--quiet", "--json", str(report)])
    assert done.exit_code == 0, done.output
    return json.loads(report.read_text())


@pytest.fixture(scope="module")
def computed(make_server, home: Path, prompts: Path) -> dict[str, dict[str, object]]:
    """Reports of runs through the first node, which has priorities. The very first run is killed."""
    with make_server("first", "--enable-priority-scheduling") as server:
        state, report = home / "state", home / "report.json"
        arguments = ["compute", prompts, "--url", f"http://127.0.0.1:{server.port}", "--state", state]
        command = [sys.executable, "-m", "sgkv", "prewarm", *map(str, arguments), "--workers", "1"]
        with subprocess.Popen([*command, "--quiet"], cwd=ROOT) as process:
            wait_until(lambda: state.exists() and done_in(state), "the first answer", 60)
            process.kill()
        reports = {"killed": {"done": done_in(state)}}
        for name in ("second", "third"):
            reports[name] = prewarm(report, *arguments)
        server.kill()
    return reports


def done_in(state: Path) -> int:
    """Prompts that a state file says are done."""
    return len(state.read_text().splitlines()) - 1


def items(report: dict[str, object], outcome: str) -> int:
    return report["outcomes"].get(outcome, {"items": 0})["items"]


def test_what_was_answered_before_the_kill_is_not_computed_again(computed):
    done = computed["killed"]["done"]
    assert 1 <= done < PROMPTS
    assert items(computed["second"], "done_before") == done
    assert items(computed["second"], "computed") == PROMPTS - done
    assert computed["third"]["outcomes"].keys() == {"done_before"}


def test_tokens_are_counted_and_the_server_has_written_what_it_computed(computed):
    report = computed["second"]
    assert report["tokens"]["prompt"] > 0
    assert report["tokens"]["cached_unreported"] == 0
    assert report["server"]["priority"] == -(2**31) + 1
    assert report["stored_settled"]
    assert report["stored_bytes"]["disk"] > 0


def test_another_node_serves_from_its_disk_what_went_there_by_way_of_a_bucket(computed, make_server, home):
    report = home / "report.json"
    with SeaweedServer(home / "weed") as weed:
        config = home / "sgkv.yaml"
        config.write_text(
            yaml.safe_dump({"tiers": [disk(home, "first"), disk(home, "second"), bucket(weed)]})
        )
        pushed = prewarm(report, "push", "--config", config)
        pulled = prewarm(report, "pull", "--config", config, "--to", "second")
    assert pushed["outcomes"] == pulled["outcomes"]
    verified = prewarm(report, "verify", "--config", config, "--tier", "second")
    assert verified["outcomes"]["good"] == pulled["outcomes"]["copied"]
    with make_server("second") as server:
        for seed in (1, 2, 3, 4):
            answer = server.generate(prompt(seed), 4)
            assert answer.cached_by_tier["storage"] == full_tokens(prompt(seed), PAGE)
        assert server.generate(prompt(9), 4).cached_tokens == 0
        chat = server.admin(
            "POST",
            "/v1/chat/completions",
            {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": DOCUMENT}]},
        )
        assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] >= full_tokens(DOCUMENT, PAGE)
        server.kill()


def disk(home: Path, name: str) -> Settings:
    return {"type": "disk", "name": name, "path": str(home / name), "capacity": "1GiB"}


def bucket(weed: SeaweedServer) -> Settings:
    return tier_settings(weed.endpoint)
