"""`sgkv why-miss` and `sgkv divergence`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.chunk.blob import BlobIdentity, put_item
from sgkv.cli.app import app
from sgkv.inspect.divergence import WINDOW, Divergence, divergences
from sgkv.keys import chunk_keys, hash_pages, page_keys
from tests.prewarm.blobs import LAYOUT, NAMESPACE, OTHER, PAGES, disk

runner = CliRunner()
TOKENS = [random.Random(3).randrange(1000) for _ in range(14 * LAYOUT.tokens)]
HASHES = hash_pages(TOKENS, LAYOUT.tokens)
PAGE = memoryview(bytes(LAYOUT.page_bytes))


def item(namespace: str, first: int, last: int):
    """Pages `first` to `last` of the prompt: a chunk, or one page."""
    hashes = HASHES[first:last]
    (key,) = (chunk_keys if len(hashes) > 1 else page_keys)(namespace, hashes[-1:])
    return put_item(key, BlobIdentity(namespace, LAYOUT, "tests"), hashes, [[PAGE]] * len(hashes), 0)


@pytest.fixture
def told(tmp_path: Path):
    """Stores blobs, and asks about a prompt; (exit code, findings)."""
    config = tmp_path / "sgkv.json"
    tier = {"type": "disk", "path": str(tmp_path / "kv"), "capacity": "64MiB"}
    config.write_text(json.dumps({"chunk_tokens": PAGES * LAYOUT.tokens, "tiers": [tier]}))

    def ask(items, prompt=TOKENS, *more: str):
        backend = disk(tmp_path / "kv")
        backend.put(items)
        backend.close()
        file = tmp_path / "prompt.json"
        file.write_text(json.dumps(prompt))
        done = runner.invoke(app, ["why-miss", str(file), "--config", str(config), "--json", *more])
        assert done.exit_code in (0, 1), done.output
        return done.exit_code, json.loads(done.output[done.output.index("{") :])["findings"]

    return ask


def test_all_of_it(told) -> None:
    blobs = [item(NAMESPACE, at, at + PAGES) for at in range(0, 12, PAGES)]
    code, (found,) = told([*blobs, item(NAMESPACE, 12, 13), item(NAMESPACE, 13, 14)])
    assert (code, found["leading"], found["pages"]) == (0, 14, 14)
    assert found["verdict"] == "all of it is there"


def test_a_gap_and_an_end(told) -> None:
    code, found = told([item(NAMESPACE, 0, 4), item(NAMESPACE, 8, 12), item(OTHER, 0, 4), item(OTHER, 4, 8)])
    assert code == 1
    assert [(one["namespace"], one["leading"], one["present"]) for one in found] == [
        (OTHER, 8, 8),
        (NAMESPACE, 4, 8),
    ]
    assert "nothing from page 8 on" in found[0]["verdict"]
    assert "page 4 is missing, 4 later ones are there" in found[1]["verdict"]
    _, found = told([], TOKENS, "--namespace", OTHER)
    assert [one["namespace"] for one in found] == [OTHER]


def test_another_prompt_by_its_hashes(told) -> None:
    code, (found,) = told([item(NAMESPACE, 0, 4)], hash_pages([1, *TOKENS], LAYOUT.tokens))
    assert (code, found["leading"], found["present"]) == (1, 0, 0)
    assert "differs in its first page" in found["verdict"]


def test_no_prompt_at_all(tmp_path: Path) -> None:
    (tmp_path / "prompt.json").write_text('{"a": 1}')
    assert runner.invoke(app, ["why-miss", str(tmp_path / "prompt.json")]).exit_code == 2


def tokens(seed: int, count: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(30_000) for _ in range(count)]


SYSTEM, ONE, TWO, THREE = (tokens(seed, 10 * WINDOW) for seed in range(4))
STAMP = tokens(9, 7)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (SYSTEM + ONE, TWO, ("new", 0, 0, 0)),
        (SYSTEM + ONE, SYSTEM + ONE + TWO, ("extended", 640, 640, 0)),
        (SYSTEM + ONE + TWO, SYSTEM + TWO + THREE, ("truncated", 320, 640, -320)),
        (SYSTEM + ONE, STAMP + SYSTEM + ONE, ("shifted", 0, 640, 7)),
        (SYSTEM + ONE + TWO + THREE, SYSTEM + TWO + ONE + THREE, ("reordered", 320, 1280, 0)),
    ],
    ids=["new", "extended", "truncated", "shifted", "reordered"],
)
def test_how_prompts_leave_each_other(first, second, expected) -> None:
    _, found = divergences([first, second])
    assert (found.kind, found.prefix, found.seen, found.moved) == expected
    assert found.lost == found.seen - found.prefix


def test_prompts_of_a_log_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, [SYSTEM + ONE, SYSTEM + ONE + TWO, STAMP + SYSTEM + ONE])))
    done = runner.invoke(app, ["divergence", str(file), "--json"])
    assert done.exit_code == 0
    summary = json.loads(done.output)["summary"]
    assert (summary["prompts"], summary["reusable"], summary["lost"]) == (3, 640, 640)
    assert summary["lost_by_kind"] == {"new": 0, "extended": 0, "shifted": 640}
    assert "shifted beside prompt" in runner.invoke(app, ["divergence", str(file)]).output
    file.write_text("[1, 2]\nnonsense\n")
    assert runner.invoke(app, ["divergence", str(file)]).exit_code == 2


def test_a_long_log_is_compared_with_its_latest_prompts() -> None:
    prompts = [tokens(seed, WINDOW) for seed in range(600)]
    found: list[Divergence] = list(divergences([*prompts, prompts[599], prompts[0]]))
    assert [one.kind for one in found[-2:]] == ["extended", "new"]
