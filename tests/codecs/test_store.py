"""A store whose disk tier is coded, opened from a configuration as an engine opens it."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from pathlib import Path

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.config import ConfigError, load, resolve
from sgkv.reasons import MissReason
from sgkv.store.build import build_store
from sgkv.store.span import Span
from tests.model.world import LAYOUT, NAMESPACE, blank, content, filled, sequence

HASHES = sequence(1, 16)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.json", first=os.urandom(32))


def write_keys(path: Path, **keys: bytes) -> Path:
    current = list(keys)[-1]
    text = json.dumps(
        {"current": current, "keys": {name: b64encode(key).decode() for name, key in keys.items()}}
    )
    path.touch(0o600)
    path.write_text(text)
    return path


class Kept:
    """A folder, and stores over it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def options(self, codec: dict[str, object], keys: Path | None, *, cpu: bool) -> dict[str, object]:
        disk = {"type": "disk", "path": str(self.folder), "capacity": "64MiB", "codec": codec}
        tiers = [*([{"type": "cpu", "capacity": "16MiB"}] if cpu else []), disk]
        return {"chunk_tokens": 16, "tiers": tiers} | ({"keys": {"file": str(keys)}} if keys else {})

    def write(self, codec: dict[str, object], keys: Path | None = None, *, cpu: bool = True) -> None:
        store = build_store(resolve(load(self.options(codec, keys, cpu=cpu), environ={}).config))
        session = store.open(NAMESPACE, LAYOUT, "test")
        assert all(session.set(Span(HASHES, ()), filled(HASHES), Deadline(20)))
        assert store.flush(20)
        store.close()

    def read(self, codec: dict[str, object], keys: Path | None = None) -> list[MissReason | None]:
        store = build_store(resolve(load(self.options(codec, keys, cpu=False), environ={}).config))
        pages = blank(len(HASHES))
        reasons = store.open(NAMESPACE, LAYOUT, "test").get(Span(HASHES, ()), pages, Deadline(20))
        store.close()
        for page_hash, page, reason in zip(HASHES, pages, reasons, strict=True):
            assert reason or b"".join(page) == content(page_hash)
        return reasons


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "kv")


ALL, NONE = {"compress": "zstd", "encrypt": True}, {}
HIT = [None] * len(HASHES)


@pytest.mark.parametrize("cpu", [True, False], ids=["behind memory", "straight"])
@pytest.mark.parametrize(
    "codec", [NONE, {"compress": "lz4"}, {"compress": "zstd", "planes": False}, {"encrypt": True}, ALL]
)
def test_another_store_reads_what_one_wrote(
    codec: dict[str, object], cpu: bool, kept: Kept, keys: Path
) -> None:
    kept.write(codec, keys, cpu=cpu)
    assert kept.read(codec, keys) == HIT


def test_what_is_only_smaller_needs_no_setting_to_be_read(kept: Kept) -> None:
    kept.write({"compress": "zstd"})
    assert kept.read(NONE) == HIT


def test_without_the_key_pages_are_locked_and_stay(kept: Kept, keys: Path, tmp_path: Path) -> None:
    kept.write(ALL, keys)
    other = write_keys(tmp_path / "other.json", second=os.urandom(32))
    assert kept.read(ALL, other) == [MissReason.LOCKED] * len(HASHES)
    assert kept.read(NONE) == [MissReason.LOCKED] * len(HASHES)
    assert kept.read(ALL, keys) == HIT


def test_unsealed_pages_are_locked_unless_they_are_accepted(kept: Kept, keys: Path) -> None:
    kept.write({"compress": "zstd"})
    assert kept.read(ALL, keys) == [MissReason.LOCKED] * len(HASHES)
    assert kept.read(ALL | {"accept_unsealed": True}, keys) == HIT


def test_dropping_a_key_shreds_what_it_sealed(kept: Kept, tmp_path: Path) -> None:
    first, second = os.urandom(32), os.urandom(32)
    kept.write(ALL, write_keys(tmp_path / "keys.json", first=first))
    assert kept.read(ALL, write_keys(tmp_path / "keys.json", first=first, second=second)) == HIT
    assert set(kept.read(ALL, write_keys(tmp_path / "keys.json", second=second))) == {MissReason.LOCKED}


class TestRefusedAtStart:
    """Better no store than one that writes in the clear what should have been sealed."""

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            (None, "there are no keys: set keys"),
            ({"provider": "file"}, "provider: file needs file"),
            ({"provider": "kms"}, "provider: kms needs kms_key"),
            ({"provider": "custom", "factory": "nowhere"}, "keys.factory"),
        ],
    )
    def test_settings(self, keys: dict[str, str] | None, said: str, kept: Kept) -> None:
        options = kept.options(ALL, None, cpu=False) | ({"keys": keys} if keys else {})
        with pytest.raises(ConfigError, match=said):
            load(options, environ={})

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ({"file": "/nowhere/keys.json"}, "cannot be read"),
            ({"provider": "environment", "variable": "SGKV_NO_SUCH_KEYS"}, "holds no keys"),
            ({"provider": "custom", "factory": "nowhere.at:all"}, "No module named"),
            ({"provider": "custom", "factory": "os:getcwd"}, "is no KeyProvider"),
        ],
    )
    def test_keys_that_cannot_be_had(self, keys: dict[str, str], said: str, kept: Kept) -> None:
        options = kept.options(ALL, None, cpu=False) | {"keys": keys}
        config = resolve(load(options, environ={}).config)
        with pytest.raises(ConfigError, match=said):
            build_store(config)


def test_keys_of_the_environment(kept: Kept, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEYS", keys.read_text())
    options = kept.options(ALL, None, cpu=False) | {
        "keys": {"provider": "environment", "variable": "MY_KEYS"}
    }
    store = build_store(resolve(load(options, environ={}).config))
    session = store.open(NAMESPACE, LAYOUT, "test")
    assert all(session.set(Span(HASHES, ()), filled(HASHES), Deadline(20)))
    store.close()
    assert kept.read(ALL, keys) == HIT
