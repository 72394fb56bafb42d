"""Blobs that are rewritten as their tier would write them now."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.backends.base import Status
from sgkv.backends.disk import DiskBackend
from sgkv.cli.app import app
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.keys import HeldKeys
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.recoding import Recoded, recode
from tests.codecs.conftest import Chunk, chunk
from tests.codecs.test_quantizing import float_chunk

OLD, NEW = os.urandom(32), os.urandom(32)


def smith(current: str, **keys: bytes) -> Locksmith:
    return Locksmith(HeldKeys(current, keys), "t")


@pytest.fixture
def disk(tmp_path: Path) -> DiskBackend:
    return DiskBackend(tmp_path / "kv", 64 << 20, min_free_bytes=0)


def fill(disk: DiskBackend, recipe: Recipe | None, count: int = 3, made=chunk) -> list[Chunk]:
    chunks = [
        Chunk([f"{seed:032x}{at:032x}" for at in range(4)], made().pages) for seed in range(1, count + 1)
    ]
    assert CodedBackend(disk, recipe).put([one.put_item() for one in chunks]) == [Status.OK] * count
    return chunks


def read(
    disk: DiskBackend, chunks: Sequence[Chunk], recipe: Recipe | None, keys: Locksmith | None = None
) -> list:
    backend, found = CodedBackend(disk, recipe, keys=keys), []
    for one in chunks:
        asked = one.read()
        (status,) = backend.get([asked.item()])
        found.append([bytes(page[0]) for page in asked.pages] if status is Status.OK else status)
    return found


def run(disk: DiskBackend, recipe: Recipe, keys: Locksmith | None = None, **more) -> Recoded:
    return recode(disk, list(disk.scan()), recipe, keys, **more)


@pytest.mark.parametrize("before", [None, Recipe("lz4"), Recipe("zstd:3")], ids=["plain", "lz4", "zstd"])
@pytest.mark.parametrize("after", [Recipe(), Recipe("lz4"), Recipe("zstd:3")], ids=["plain", "lz4", "zstd"])
def test_any_way_of_storing_becomes_any_other(
    disk: DiskBackend, before: Recipe | None, after: Recipe
) -> None:
    chunks = fill(disk, before)
    done = run(disk, after)
    changes = (before.squeeze if before else "") != after.squeeze
    assert (done.looked_at, done.rewritten, done.failed) == (3, 3 * changes, 0)
    assert read(disk, chunks, after if after.squeeze else None) == [list(one.pages) for one in chunks]
    assert run(disk, after).rewritten == 0, "a second run finds nothing to do"


def test_everything_is_sealed_with_the_new_key_and_the_old_one_can_go(disk: DiskBackend) -> None:
    old = Recipe("zstd:1", locksmith=smith("old", old=OLD))
    chunks = fill(disk, old)
    both = smith("new", old=OLD, new=NEW)
    done = run(disk, Recipe("zstd:1", locksmith=both), both)
    assert (done.rewritten, done.locked) == (3, 0)
    alone = Recipe("zstd:1", locksmith=smith("new", new=NEW))
    assert read(disk, chunks, alone) == [list(one.pages) for one in chunks]
    assert read(disk, chunks, old) == [Status.LOCKED] * 3


def test_what_nobody_here_can_open_stays(disk: DiskBackend) -> None:
    chunks = fill(disk, Recipe(locksmith=smith("old", old=OLD)))
    new = smith("new", new=NEW)
    done = run(disk, Recipe(locksmith=new), new)
    assert (done.looked_at, done.rewritten, done.locked) == (3, 0, 3)
    assert read(disk, chunks, Recipe(locksmith=smith("old", old=OLD))) == [list(one.pages) for one in chunks]


def test_quantized_pages_are_sealed_and_lose_no_more(disk: DiskBackend) -> None:
    chunks = fill(disk, Recipe("zstd:1", quantize=("nf4", "nf4")), 1, float_chunk)
    lossy = read(disk, chunks, None)
    keys = smith("new", new=NEW)
    sealing = Recipe("lz4", locksmith=keys, quantize=("int4", "int4"))
    assert run(disk, sealing, keys).rewritten == 1
    assert read(disk, chunks, sealing) == lossy
    assert run(disk, Recipe("lz4", quantize=("int4", "int4")), keys).rewritten == 1
    assert read(disk, chunks, None) == lossy


def test_damaged_blobs_are_left_to_their_readers(disk: DiskBackend, tmp_path: Path) -> None:
    fill(disk, Recipe("lz4"), 2)
    victim = next(iter(disk.scan()))
    path = tmp_path / "kv" / "blobs" / victim.key
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    done = run(disk, Recipe("zstd:1"))
    assert (done.rewritten, done.damaged) == (1, 1)
    assert path.read_bytes() == bytes(raw)


def test_a_run_that_is_stopped_goes_on_where_it_was(disk: DiskBackend) -> None:
    chunks, told = fill(disk, None, 5), []
    run(disk, Recipe("lz4"), told=lambda done: told.append(done.rewritten), stopped=lambda: len(told) == 2)
    assert told == [1, 2]
    assert run(disk, Recipe("lz4")).rewritten == 3
    assert read(disk, chunks, Recipe("lz4")) == [list(one.pages) for one in chunks]


def test_a_rate_is_kept(disk: DiskBackend) -> None:
    fill(disk, None, 4)
    pauses: list[float] = []
    size = sum(blob.size for blob in disk.scan())
    run(disk, Recipe("lz4"), bytes_a_second=size / 100, sleep=pauses.append)
    assert 90 < sum(pauses) <= 100


def test_the_command(disk: DiskBackend, tmp_path: Path) -> None:
    chunks = fill(disk, None)
    disk.close()
    key_file = tmp_path / "keys.json"
    key_file.touch(0o600)
    key_file.write_text(json.dumps({"current": "k", "keys": {"k": b64encode(NEW).decode()}}))
    tier = {"type": "disk", "path": str(tmp_path / "kv"), "capacity": "64MiB", "min_free": 0}
    tier["codec"] = {"compress": "zstd", "encrypt": True}
    config = tmp_path / "sgkv.json"
    config.write_text(json.dumps({"tiers": [tier], "keys": {"file": str(key_file)}}))
    done = CliRunner().invoke(app, ["recode", "disk", "--config", str(config), "--json", "--rate", "1GiB"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output[done.output.index("{") :])["rewritten"] == 3
    disk = DiskBackend(tmp_path / "kv", 64 << 20, min_free_bytes=0)
    assert disk.wait_scanned(10)
    sealed = Recipe("zstd:1", locksmith=smith("k", k=NEW))
    assert read(disk, chunks, sealed) == [list(one.pages) for one in chunks]
