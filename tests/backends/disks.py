"""Disk tiers for tests, and files behind their backs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sgkv.backends.disk import DiskBackend

SIZE = 64 << 10
ROOM = 16

Open = Callable[..., DiskBackend]


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_below(folder))


def blob_path(folder: Path, key: str) -> Path:
    return folder / "blobs" / key


def age(path: Path, seconds: float) -> None:
    """Make a file look as if it had last been used `seconds` before it really was."""
    info = path.stat()
    os.utime(path, (info.st_atime - seconds, info.st_mtime - seconds))
