"""A real SGLang computes prompts into its store; what it stored travels to another node, and is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.testing.models import write_model
from sgkv.testing.server import SglangServer
from tests.e2e.rig import Settings, full_tokens, prompt, settings

pytestmark = pytest.mark.server

PAGE = 64
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
def computed(make_server, home: Path, prompts: Path) -> Iterator[dict[str, object]]:
    """The report of a run through the first node, which has priorities, and of one that had no work left."""
    with make_server("first", "--enable-priority-scheduling") as server:
        report = home / "report.json"
        arguments = ["compute", prompts, "--url", f"http://127.0.0.1:{server.port}"]
        first = prewarm(report, *arguments)
        again = prewarm(report, *arguments)
        server.kill()
    return {"first": first, "again": again}


def test_every_prompt_is_computed_and_stored(computed):
    report = computed["first"]
    assert report["outcomes"]["computed"]["items"] == 4
    assert report["tokens"]["prompt"] >= 2 * len(prompt(1)) + 2 * len(DOCUMENT)
    assert report["tokens"]["cached_unreported"] == 0
    assert report["stored_settled"]
    stored = report["stored_bytes"]["disk"]
    whole = 2 * full_tokens(prompt(1), PAGE) + full_tokens(DOCUMENT, PAGE)
    assert stored >= whole * 2048


def test_and_not_again(computed):
    assert list(computed["again"]["outcomes"]) == ["done_before"]


def test_another_node_serves_from_its_disk_what_went_there_by_way_of_a_bucket(computed, make_server, home):
    config = home / "sgkv.yaml"
    names = ("first", "bucket", "second")
    tiers = [tier(home, name) for name in names]
    config.write_text(yaml.safe_dump({"tiers": tiers}))
    report = home / "report.json"
    pushed = prewarm(report, "push", "--config", config, "--from", "first", "--to", "bucket")
    pulled = prewarm(report, "pull", "--config", config, "--from", "bucket", "--to", "second")
    assert pushed["outcomes"] == pulled["outcomes"]
    verified = prewarm(report, "verify", "--config", config, "--tier", "second")
    assert verified["outcomes"]["good"] == pulled["outcomes"]["copied"]
    with make_server("second") as server:
        for seed in (1, 2):
            answer = server.generate(prompt(seed), 4)
            assert answer.cached_by_tier["storage"] == full_tokens(prompt(seed), PAGE)
        assert server.generate(prompt(3), 4).cached_tokens == 0
        chat = server.admin(
            "POST",
            "/v1/chat/completions",
            {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": DOCUMENT}]},
        )
        assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] >= full_tokens(DOCUMENT, PAGE)
        server.kill()


def tier(home: Path, name: str) -> Settings:
    return {"type": "disk", "name": name, "path": str(home / name), "capacity": "1GiB"}
