"""Damaged storage: every wrong byte is a miss with a reason, and nothing is lost around it."""

import os
import shutil

import msgspec
import pytest

from sgkv.chunk.header import decode_header, encode_header, header_size
from sgkv.keys import chunk_keys, page_keys
from sgkv.reasons import MissReason
from tests.store.conftest import (
    PAGE_BYTES,
    chain,
    found_in,
    joined,
    layout,
    namespace,
    put,
    random_pages,
    read,
)  # fmt: skip

HEADER = header_size(4)
BLOB = HEADER + 4 * PAGE_BYTES


@pytest.fixture
def stored(disk_rig):
    """A session over one chunk on disk, its pages, and the path of its file."""
    session = disk_rig.store().open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes, pages)
    (key,) = chunk_keys(namespace().digest, hashes[-1:])
    return session, hashes, pages, disk_rig.path / "blobs" / key


def overwrite(path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x10]))


def test_a_flipped_page_is_corrupt_and_the_others_are_served(stored):
    session, hashes, pages, path = stored
    flip(path, HEADER + PAGE_BYTES + 17)
    reasons, got = read(session, hashes)
    assert reasons == [None, MissReason.CORRUPT, None, None]
    assert [got[0], *got[2:]] == [joined(pages)[0], *joined(pages)[2:]]


def test_a_corrupt_blob_leaves_the_tier_and_can_be_stored_again(stored):
    session, hashes, _, path = stored
    flip(path, HEADER + 5)
    read(session, hashes)
    assert not path.exists()
    assert found_in(session, hashes).pages == 0
    pages = random_pages(4)
    assert put(session, hashes, pages) == [True] * 4
    assert read(session, hashes) == ([None] * 4, joined(pages))


@pytest.mark.parametrize("offset", [0, 3, 8, 12, 16, 25, 40, 200, 1000, HEADER - 1])
def test_a_flipped_header_serves_nothing(stored, offset):
    session, hashes, _, path = stored
    flip(path, offset)
    assert read(session, hashes)[0] == [MissReason.CORRUPT] * 4


@pytest.mark.parametrize(
    "size", [0, 1, 20, HEADER - 1, HEADER, HEADER + PAGE_BYTES, HEADER + 4 * PAGE_BYTES - 1]
)
def test_a_truncated_blob_serves_nothing_beyond_its_end(stored, size):
    session, hashes, pages, path = stored
    os.truncate(path, size)
    reasons, got = read(session, hashes)
    assert all(reason is None or reason is MissReason.CORRUPT for reason in reasons)
    assert any(reasons)
    assert all(got[i] == joined(pages)[i] for i, reason in enumerate(reasons) if reason is None)


def test_a_foreign_file_is_refused(stored):
    session, hashes, _, path = stored
    path.write_bytes(os.urandom(HEADER + 4 * PAGE_BYTES))
    assert read(session, hashes)[0] == [MissReason.CORRUPT] * 4


def test_another_chunk_under_this_name_is_refused(stored, disk_rig):
    session, hashes, _, path = stored
    other = chain(4, seed=9)
    put(session, other, random_pages(4))
    (key,) = chunk_keys(namespace().digest, other[-1:])
    shutil.copy(disk_rig.path / "blobs" / key, path)
    assert read(session, hashes)[0] == [MissReason.FOREIGN] * 4


def test_a_blob_of_another_namespace_is_refused(stored, disk_rig):
    session, hashes, _, path = stored
    elsewhere = namespace(weights="other weights")
    put(disk_rig.stores[0].open(elsewhere, layout()), hashes, random_pages(4))
    (key,) = chunk_keys(elsewhere.digest, hashes[-1:])
    shutil.copy(disk_rig.path / "blobs" / key, path)
    assert read(session, hashes)[0] == [MissReason.FOREIGN] * 4


@pytest.mark.parametrize(
    "change", [{"dtype": "float16"}, {"heads": 1}, {"codecs": ("zstd",)}, {"order": "opaque"}]
)
def test_what_this_reader_cannot_use_is_a_layout_miss_and_stays(stored, change):
    session, hashes, _, path = stored
    raw = memoryview(bytearray(path.read_bytes()[:HEADER]))
    encode_header(msgspec.structs.replace(decode_header(raw), **change), raw)
    overwrite(path, 0, raw)
    assert read(session, hashes)[0] == [MissReason.LAYOUT] * 4
    assert path.exists()


def test_a_vanished_file_is_absent(stored):
    session, hashes, _, path = stored
    path.unlink()
    assert read(session, hashes)[0] == [MissReason.ABSENT] * 4
    assert found_in(session, hashes).pages == 0


def test_a_vanished_folder_is_absent_and_is_made_again(stored, disk_rig):
    session, hashes, _, _ = stored
    shutil.rmtree(disk_rig.path)
    assert read(session, hashes)[0] == [MissReason.ABSENT] * 4
    pages = random_pages(4)
    assert put(session, hashes, pages) == [True] * 4
    assert read(session, hashes) == ([None] * 4, joined(pages))


def test_every_byte_of_a_small_blob_flipped_once_serves_no_wrong_byte(disk_rig):
    session = disk_rig.store().open(namespace(), layout())
    hashes, pages = chain(1), random_pages(1)
    put(session, hashes, pages)
    (key,) = page_keys(namespace().digest, hashes)
    path = disk_rig.path / "blobs" / key
    original = path.read_bytes()
    for offset in range(0, len(original), 7):
        path.write_bytes(original[:offset] + bytes([original[offset] ^ 1]) + original[offset + 1 :])
        assert read(session, hashes)[0] == [MissReason.CORRUPT]
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(original)
    assert read(session, hashes) == ([None], joined(pages))


def test_corruption_on_one_tier_is_no_miss_when_another_has_it(two_tier_rig):
    store = two_tier_rig.store()
    session = store.open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes, pages)
    store.flush(10)
    (key,) = chunk_keys(namespace().digest, hashes[-1:])
    flip(two_tier_rig.path / "blobs" / key, HEADER + 1)
    assert read(session, hashes) == ([None] * 4, joined(pages))
