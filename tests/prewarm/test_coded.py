"""Coded blobs on their way between tiers: verified as they are stored, opened by nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sgkv.backends.base import Backend, GetItem, Status
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.keys import HeldKeys
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.sealed import SealedOnly
from sgkv.store.reading import whole
from tests.prewarm.blobs import chunk, contents, fill, flip, key_of, path_of
from tests.prewarm.test_copy import copied, counts


@pytest.fixture
def recipe() -> Recipe:
    return Recipe("zstd:1", locksmith=Locksmith(HeldKeys("key", {"key": os.urandom(32)}), "tenant"))


def opens(backend: Backend, number: int) -> Status:
    item = chunk(number)
    into = [memoryview(bytearray(len(buffer))) for buffer in item.buffers]
    return backend.get([GetItem(item.key, whole(into))])[0]


def test_they_are_copied_as_they_are_and_still_open(far: Backend, near: Backend, recipe: Recipe) -> None:
    fill(CodedBackend(far, recipe), 5)
    assert counts(copied(far, near)) == {"copied": 5}
    assert contents(near) == contents(far)
    assert opens(CodedBackend(near, recipe), 3) is Status.OK
    assert opens(CodedBackend(near), 3) is Status.LOCKED


def test_a_damaged_one_is_not_copied(far: Backend, near: Backend, recipe: Recipe, tmp_path: Path) -> None:
    fill(CodedBackend(far, recipe), 3)
    flip(path_of(tmp_path / "far", key_of(1)), 5000)
    assert counts(copied(far, near)) == {"copied": 2, "corrupt": 1}


def test_nothing_unsealed_gets_into_a_tier_that_encrypts(far: Backend, near: Backend, recipe: Recipe) -> None:
    fill(far, 2)
    fill(CodedBackend(far, Recipe("zstd:1")), 2, first=2)
    fill(CodedBackend(far, recipe), 2, first=4)
    assert counts(copied(far, SealedOnly(near))) == {"failed": 4, "copied": 2}
    assert set(contents(near)) == {key_of(4), key_of(5)}
