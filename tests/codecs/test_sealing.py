"""Sealed blobs: who cannot open them, and what does not pass for one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from sgkv.backends.base import Backend, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.errors import KeyConfigError, LockedError, SealError
from sgkv.codecs.keys import HeldKeys, parse_keys, read_keys
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.sealing import Seal
from sgkv.keys import chunk_keys
from tests.codecs.conftest import NAMESPACE, Chunk, chunk, outcome, put


def sealing(backend: Backend, keys: HeldKeys, tenant: str = "tenant", **options: bool) -> CodedBackend:
    return CodedBackend(backend, Recipe("zstd:1", locksmith=Locksmith(keys, tenant)), **options)


def stored_file(folder: Path, of: Chunk) -> Path:
    return folder / "tier" / "blobs" / of.key


def test_nothing_of_a_page_is_in_the_clear(disk: Backend, keys: HeldKeys, tmp_path: Path) -> None:
    of = Chunk(chunk().hashes, [b"the same sixteen" * 256 for _ in range(4)])
    put(CodedBackend(disk, Recipe(locksmith=Locksmith(keys, "tenant"))), of)
    stored = stored_file(tmp_path, of).read_bytes()
    assert b"the same sixteen" not in stored
    assert b"\x89SGKV" not in stored


def test_another_key_does_not_open_it_and_it_stays(disk: Backend, keys: HeldKeys) -> None:
    of = chunk()
    put(sealing(disk, keys), of)
    for others in ({"first": os.urandom(32)}, {"second": os.urandom(32)}):
        stranger = sealing(disk, HeldKeys(next(iter(others)), others))
        assert outcome(stranger, of) is Status.LOCKED
    assert outcome(CodedBackend(disk), of) is Status.LOCKED
    assert outcome(sealing(disk, keys), of) is Status.OK


def test_a_rotated_key_opens_what_it_sealed_until_it_is_dropped(disk: Backend) -> None:
    old, new, of, later = os.urandom(32), os.urandom(32), chunk(seed=1), chunk(seed=2)
    put(sealing(disk, HeldKeys("old", {"old": old})), of)
    both = sealing(disk, HeldKeys("new", {"old": old, "new": new}))
    assert outcome(both, of) is Status.OK
    put(both, later)
    only = sealing(disk, HeldKeys("new", {"new": new}))
    assert (outcome(only, of), outcome(only, later)) == (Status.LOCKED, Status.OK)


def test_where_all_must_be_sealed_what_is_not_is_refused(disk: Backend, keys: HeldKeys) -> None:
    plain, smaller, sealed = chunk(seed=1), chunk(seed=2), chunk(seed=3)
    put(disk, plain)
    put(CodedBackend(disk, Recipe("zstd:1")), smaller)
    strict = sealing(disk, keys, sealed_only=True)
    put(strict, sealed)
    assert [outcome(strict, one) for one in (plain, smaller, sealed)] == [
        Status.LOCKED,
        Status.LOCKED,
        Status.OK,
    ]
    with pytest.raises(ValueError, match="needs a recipe with keys"):
        CodedBackend(disk, sealed_only=True)


def test_one_blob_under_the_name_of_another_does_not_open(
    disk: Backend, keys: HeldKeys, tmp_path: Path
) -> None:
    first, second = chunk(seed=1), chunk(seed=2)
    coded = sealing(disk, keys)
    put(coded, first, second)
    stored_file(tmp_path, first).write_bytes(stored_file(tmp_path, second).read_bytes())
    assert outcome(coded, first) is Status.CORRUPT
    assert outcome(coded, second) is Status.OK


def test_no_two_blobs_share_a_byte_of_cipher_text(keys: HeldKeys) -> None:
    """The same pages, under the same name, by the same key: each time another salt."""
    seen = set()
    for _ in range(20):
        cpu = CpuBackend(8 << 20, prefault=False)
        of = Chunk(["0" * 63 + "1"], [bytes(4096)])
        put(sealing(cpu, keys), of)
        lease = cpu.lease([of.key])[0]
        assert lease is not None
        seen.add(bytes(lease.view)[-64:])
    assert len(seen) == 20


def test_what_cannot_be_sealed_is_not_written(disk: Backend, keys: HeldKeys) -> None:
    of = Chunk(chunk().hashes, [b"pages of another size than the header says"] * 4)
    assert put(sealing(disk, keys), of) == [Status.ERROR]
    assert list(disk.scan()) == []


@pytest.mark.parametrize("sealed", [True, False])
def test_bytes_that_were_changed_are_never_served(sealed: bool, tmp_path: Path, disk: Backend) -> None:
    """Any change of any byte, any truncation, anything between two good ends: the pages or nothing."""
    keys = HeldKeys("key", {"key": os.urandom(32)})
    coded = sealing(disk, keys) if sealed else CodedBackend(disk, Recipe("zstd:1"))
    of, chance = chunk(pages=2), random.Random(7)
    put(coded, of)
    path = stored_file(tmp_path, of)
    good, served = path.read_bytes(), 0
    for _ in range(1500):
        bad = bytearray(good)
        match chance.randrange(4):
            case 0:
                bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            case 1:
                del bad[chance.randrange(len(bad)) :]
            case 2:
                at = chance.randrange(len(bad))
                bad[at : at + 64] = os.urandom(64)
            case 3:
                here, there = (chance.randrange(len(bad) - 64) for _ in range(2))
                bad[here : here + 64] = bad[there : there + 64]
        if bytes(bad) == good:
            continue
        path.write_bytes(bad)
        served += outcome(coded, of) is Status.OK  # compares every byte
    assert served == 0


class TestKeys:
    def test_a_file_that_others_may_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        path.write_text('{"current": "a", "keys": {}}')
        path.chmod(0o644)
        with pytest.raises(KeyConfigError, match="chmod 600"):
            read_keys(path)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            '{"current": "a"}',
            '{"current": "a", "keys": {"a": "c2hvcnQ="}}',
            '{"current": "b", "keys": {"a": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}}',
            '{"current": "a", "keys": {"a": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE!"}}',
        ],
    )
    def test_what_holds_no_keys_says_so_and_shows_none(self, text: str) -> None:
        with pytest.raises(KeyConfigError) as refused:
            parse_keys(text, "the file")
        assert "MDEyMzQ1" not in str(refused.value)
        assert "c2hvcnQ" not in str(refused.value)

    def test_closed_keys_are_gone(self) -> None:
        keys = HeldKeys("a", {"a": os.urandom(32)})
        made = keys.new({})
        assert keys.open(made.key_id, made.wrapped, {}) == made.key
        keys.close()
        with pytest.raises(LockedError):
            keys.open(made.key_id, made.wrapped, {})
        with pytest.raises(LockedError):
            keys.new({})

    def test_a_data_key_is_not_shown(self) -> None:
        made = HeldKeys("a", {"a": os.urandom(32)}).new({})
        assert repr(made) == "DataKey(of 'a')"

    def test_a_namespace_has_a_data_key_of_its_own(self, locksmith: Locksmith) -> None:
        other = chunk_keys("f" * 32, ["0" * 64])[0]
        mine = chunk_keys(NAMESPACE, ["0" * 64])[0]
        assert locksmith.data_key(mine).key == locksmith.data_key(mine).key
        assert locksmith.data_key(mine).key != locksmith.data_key(other).key


def test_keys_that_are_not_remembered_are_erased(keys: HeldKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgkv.codecs.locksmith._MOST", 2)
    locksmith = Locksmith(keys, "tenant")
    made = [locksmith.data_key(f"{at:032x}/c/00/00") for at in range(4)]
    assert [any(one.key) for one in made] == [False, False, True, True]
    locksmith.close()
    assert not any(any(one.key) for one in made)


@pytest.mark.slow
def test_a_million_forged_sections_are_refused() -> None:
    """Changed, cut, lengthened, moved to another place, of another blob, or with another salt: none opens."""
    data_key, chance = os.urandom(32), random.Random(11)
    seals = [Seal(data_key, os.urandom(16), f"namespace/c/00/{name}", b"fields") for name in range(4)]
    good = [seal.close(place, os.urandom(48)) for place, seal in enumerate(seals)]
    opened = 0
    for _ in range(1_000_000):
        at = chance.randrange(4)
        section, place = bytearray(good[at]), at
        match chance.randrange(4):
            case 0:
                section[chance.randrange(len(section))] ^= 1 << chance.randrange(8)
            case 1:
                del section[chance.randrange(len(section)) :]
            case 2:
                place = chance.choice([other for other in range(9) if other != at])
            case 3:
                section = bytearray(good[(at + chance.randrange(1, 4)) % 4])
        try:
            seals[at].open(place, section)
            opened += 1
        except SealError:
            continue
    assert opened == 0
