"""`sgkv inspect`: holdings of a tier, and single blobs, whole and damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.keys import HeldKeys
from sgkv.codecs.locksmith import Locksmith
from tests.prewarm.blobs import NAMESPACE, OTHER, chunk, disk, fill, flip, key_of, path_of

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def config(tmp_path: Path, folder: Path) -> Path:
    path = tmp_path / "sgkv.yaml"
    path.write_text(f"tiers: [{{type: disk, path: {folder}, capacity: 64MiB}}]\n")
    return path


def inspect(*arguments: object) -> tuple[int, str]:
    done = runner.invoke(app, ["inspect", *map(str, arguments)])
    return done.exit_code, done.output


def told(*arguments: object) -> dict:
    code, output = inspect(*arguments, "--json")
    assert code in (0, 1), output
    return json.loads(output[output.index("{") :])


def test_namespaces_with_what_is_in_them(folder: Path, config: Path) -> None:
    backend = disk(folder)
    fill(backend, 5)
    fill(backend, 2, OTHER)
    backend.put([chunk(9, pages=1)])
    backend.close()
    largest, other = told("tier", "disk", "--config", config)["namespaces"]
    assert (largest["namespace"], largest["chunks"], largest["pages"]) == (NAMESPACE, 5, 1)
    assert (other["namespace"], other["chunks"], other["pages"]) == (OTHER, 2, 0)
    assert (other["says"]["dtype"], other["says"]["producer"]) == ("float32", "tests")
    code, table = inspect("tier", "disk", "--config", config, "--namespace", OTHER)
    assert (code, OTHER in table, NAMESPACE in table) == (0, True, False)


def test_a_whole_blob_and_a_damaged_one(folder: Path, config: Path) -> None:
    backend = disk(folder)
    fill(backend, 2)
    backend.close()
    flip(path_of(folder, key_of(1)), 5000)
    assert inspect("blob", "disk", key_of(0), "--config", config)[0] == 0
    facts = told("blob", path_of(folder, key_of(1)))
    assert (facts["kind"], facts["pages"]) == ("chunk", 4)
    assert "checksum of page" in facts["flaw"]
    code, shown = inspect("blob", "disk", key_of(1), "--config", config)
    assert (code, "does not match" in shown) == (1, True)


def test_a_sealed_blob_shows_its_envelope(folder: Path, config: Path) -> None:
    keys = Locksmith(HeldKeys("mine", {"mine": os.urandom(32)}), "tenant")
    backend = CodedBackend(disk(folder), Recipe("zstd:1", locksmith=keys))
    fill(backend, 1)
    backend.close()
    facts = told("blob", "disk", key_of(0), "--config", config)
    assert (facts["kind"], facts["cipher"], facts["key_id"]) == ("coded", "aes-256-gcm", "mine")
    assert (facts["flaw"], facts["pages"]) == ("", 4)
    flip(path_of(folder, key_of(0)), -1)
    assert told("blob", "disk", key_of(0), "--config", config)["flaw"]
    assert told("tier", "disk", "--config", config)["namespaces"][0]["says"] == {"coded": True}


def test_what_is_no_blob_says_so(folder: Path, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("not a blob")
    assert told("blob", path)["kind"] == "unknown"
    for arguments in (("blob", "disk", "nowhere"), ("tier", "bucket"), ("tier", "a b")):
        assert inspect(*arguments, "--config", config)[0] == 2
    assert inspect("blob", tmp_path / "nowhere")[0] == 2
