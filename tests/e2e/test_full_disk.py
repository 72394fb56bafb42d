"""A disk that takes nothing more: the answers do not change, and what fits is kept."""

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.testing.waiting import wait_until
from tests.e2e.rig import Folder, assert_same, prompt, settings
from tests.e2e.served import Served

pytestmark = pytest.mark.server

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB; a prompt's KV is 4."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"may not mount a small file system: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def no_file_above_64_kib(llama: Served) -> Iterator[None]:
    """A limit of the scheduler's that every blob runs into, whoever runs the tests."""
    pids = llama.processes()
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (64 * 1024, hard))
    yield
    for pid, limits in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def failed_writes(llama: Served) -> float:
    return llama.samples("failed_writes", "tier").get("disk", 0.0)


def test_another_user_of_the_disk_has_filled_it(llama: Served, small_disk: Path):
    llama.attach(settings(small_disk / "kv", capacity="2MiB", min_free=0))
    (small_disk / "others").write_bytes(bytes(3 * MIB - 64 * 1024))
    before, ids = failed_writes(llama), prompt(60)
    cold = llama.again(ids)
    wait_until(lambda: failed_writes(llama) > before, "the disk to refuse a blob")
    assert not Folder(small_disk / "kv").temps()
    llama.assert_restored(llama.again(ids), cold, ids)  # from the cpu tier
    assert_same(llama.plain(ids), cold)


def test_the_disk_is_smaller_than_the_quota_believed(llama: Served, small_disk: Path):
    """Older blobs make room for newer ones, and nothing is left half written."""
    folder = Folder(small_disk / "kv")
    llama.attach(settings(folder, capacity="3MiB", min_free=0))
    for seed in (61, 62):
        ids = prompt(seed)
        cold = llama.again(ids)
        llama.attach(settings(folder, capacity="3MiB", min_free=0))  # drains, and empties the cpu tier
        assert_same(llama.generate(ids), cold)
    assert not folder.temps()
    assert 1 * MIB < folder.size() < 3 * MIB


def test_a_disk_that_turns_read_only(llama: Served, small_disk: Path):
    folder, ids = Folder(small_disk / "kv"), prompt(63, 700)
    llama.attach(settings(folder, capacity="2MiB", min_free=0))
    cold = llama.cold(ids, folder)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    llama.detach()
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    llama.attach(settings(folder, capacity="2MiB", min_free=0))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    llama.assert_restored(llama.again(ids), cold, ids)  # reading needs no writing
    before, more = failed_writes(llama), prompt(64, 700)
    answer = llama.again(more)
    wait_until(lambda: failed_writes(llama) > before, "the read-only disk to refuse a blob")
    assert_same(llama.plain(more), answer)


@pytest.mark.usefixtures("no_file_above_64_kib")
def test_no_file_can_grow(llama: Served, tmp_path: Path):
    folder, ids = Folder(tmp_path / "kv"), prompt(65)
    llama.attach(settings(folder))
    before = failed_writes(llama)
    cold = llama.again(ids)
    wait_until(lambda: failed_writes(llama) > before, "a blob to be refused")
    assert not folder.blobs()
    wait_until(lambda: not folder.temps(), "what was begun to be removed")
    llama.assert_restored(llama.again(ids), cold, ids)  # from the cpu tier
