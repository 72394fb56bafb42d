"""Fixtures of the disk tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgkv.backends.disk import DiskBackend
from tests.backends.disks import ROOM, SIZE, Open


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tier"


@pytest.fixture
def open_disk(folder: Path) -> Iterator[Open]:
    """Open a tier of `ROOM` blobs of `SIZE` bytes; every one opened is closed in the end."""
    opened: list[DiskBackend] = []

    def opener(path: Path = folder, capacity: int = ROOM * SIZE, **options: object) -> DiskBackend:
        options.setdefault("min_free_bytes", 0)
        backend = DiskBackend(path, capacity, **options)  # type: ignore[arg-type]
        opened.append(backend)
        assert backend.wait_scanned(10)
        return backend

    yield opener
    for backend in opened:
        backend.close()


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a file system of so many bytes. Skips, visibly, where this user may not mount."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        target = tmp_path / f"mount-{len(mounted)}"
        target.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
        mounted.append(target)
        return target

    yield mount
    for target in mounted:
        subprocess.run(["umount", "--lazy", str(target)], check=True)
