"""Files that change behind the store's back: never served, always counted, written anew."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sgkv.testing.waiting import wait_until
from tests.e2e.rig import BLOCK, Folder, assert_same, full_tokens, prompt, settings
from tests.e2e.served import Served

pytestmark = pytest.mark.server


def flip_a_bit(blob: Path, at: int = BLOCK) -> None:
    """By default in the first page."""
    raw = bytearray(blob.read_bytes())
    raw[at] ^= 1
    blob.write_bytes(raw)


def spoil_the_header(blob: Path) -> None:
    blob.write_bytes(b"\xff" * 64 + blob.read_bytes()[64:])


def cut_in_half(blob: Path) -> None:
    blob.write_bytes(blob.read_bytes()[: blob.stat().st_size // 2])


def cut_in_the_header(blob: Path) -> None:
    blob.write_bytes(blob.read_bytes()[: BLOCK // 2])


def empty(blob: Path) -> None:
    blob.write_bytes(b"")


def replace_by_noise(blob: Path) -> None:
    blob.write_bytes(bytes(range(256)) * (blob.stat().st_size // 256))


CORRUPTIONS = [flip_a_bit, spoil_the_header, cut_in_half, cut_in_the_header, empty, replace_by_noise]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, llama: Served) -> Path:
    """A folder that holds seven chunks and three single pages of one prompt."""
    folder = Folder(tmp_path_factory.mktemp("stored") / "kv")
    llama.attach(settings(folder))
    llama.cold(prompt(50), folder)
    llama.detach()
    return folder.path


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Folder:
    return Folder(Path(shutil.copytree(stored, tmp_path / "kv")))


@pytest.fixture(scope="module")
def plain(llama: Served, stored: Path):
    """The answer without a store."""
    return llama.plain(prompt(50))


@pytest.mark.parametrize("damage", CORRUPTIONS)
def test_damaged_blobs_are_misses_and_written_anew(
    damage: Callable[[Path], None], llama: Served, folder: Folder, plain
):
    ids = prompt(50)
    blobs = folder.blobs()
    for blob in blobs:
        damage(blob)
    llama.attach(settings(folder))
    with llama.counting("miss_pages", "reason") as missed:
        answer = llama.generate(ids)
    assert_same(answer, plain)
    assert answer.cached_tokens == 0
    assert missed.keys() == {"corrupt"}
    folder.wait_for_size(llama.stored_bytes(ids))
    llama.attach(settings(folder, cpu=False))
    llama.assert_restored(llama.generate(ids), plain, ids)


def test_what_precedes_a_damaged_chunk_is_served(llama: Served, folder: Folder, plain):
    ids = prompt(50)
    in_order = sorted(folder.blobs(), key=lambda blob: blob.stat().st_mtime_ns)
    flip_a_bit(in_order[2], at=-1)
    llama.attach(settings(folder))
    answer = llama.generate(ids)
    assert answer.cached_tokens == 2 * 256 + 3 * 64  # the third chunk's last page
    assert_same(answer, plain)
    assert llama.server.healthy()


def test_blobs_of_another_namespace_under_our_names(llama: Served, folder: Folder, tmp_path: Path, plain):
    ids, other = prompt(50), Folder(tmp_path / "other")
    llama.attach({**settings(other), "tenant": "somebody-else"})
    llama.cold(ids, other)
    llama.detach()
    for mine, theirs in zip(_by_hash(folder), _by_hash(other), strict=True):
        shutil.copyfile(theirs, mine)
    llama.attach(settings(folder))
    with llama.counting("miss_pages", "reason") as missed:
        answer = llama.generate(ids)
    assert_same(answer, plain)
    assert answer.cached_tokens == 0
    assert missed == {"foreign": full_tokens(ids, llama.page_size) / llama.page_size}


def test_blobs_of_other_pages_under_our_names(llama: Served, folder: Folder, plain):
    ids = prompt(50)
    chunks = [blob for blob in folder.blobs() if blob.parent.parent.name == "c"]
    swapped = [blob.read_bytes() for blob in chunks[1:] + chunks[:1]]
    for blob, raw in zip(chunks, swapped, strict=True):
        blob.write_bytes(raw)
    llama.attach(settings(folder))
    with llama.counting("miss_pages", "reason") as missed:
        answer = llama.generate(ids)
    assert_same(answer, plain)
    assert answer.cached_tokens == 0
    assert missed == {"foreign": 4 * len(chunks)}


def test_blobs_that_vanish_after_the_index_has_seen_them(llama: Served, folder: Folder, plain):
    llama.attach(settings(folder))
    wait_until(lambda: folder.quota() in llama.disk_used(), "the folder to be indexed")
    for blob in folder.blobs():
        blob.unlink()
    with llama.counting("miss_pages", "reason") as missed:
        answer = llama.generate(prompt(50))
    assert_same(answer, plain)
    assert answer.cached_tokens == 0
    assert missed.keys() == {"absent"}


def test_a_folder_that_vanishes_whole_comes_back(llama: Served, folder: Folder, plain):
    ids = prompt(50)
    llama.attach(settings(folder, cpu=False))
    shutil.rmtree(folder.path)
    assert_same(llama.generate(ids), plain)
    folder.wait_for_size(llama.stored_bytes(ids))
    llama.assert_restored(llama.again(ids), plain, ids)


def _by_hash(folder: Folder) -> list[Path]:
    """Blobs in the order of their page hashes, which do not depend on the namespace."""
    return sorted(folder.blobs(), key=lambda blob: (blob.parent.parent.name, blob.name))
