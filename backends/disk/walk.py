"""Reading the folder."""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sgkv.backends.disk.layout import Layout, is_key


class Found(NamedTuple):
    """A published file."""

    key: str
    size: int
    modified: float
    """Unix seconds of its last write."""
    used: float
    """Unix seconds of its last known use."""


def walk(layout: Layout, folder: str = "", stopped: Callable[[], bool] = lambda: False) -> Iterator[Found]:
    """Every blob below `blobs/{folder}`; ends early once `stopped` says so.

    What vanishes meanwhile is left out, as are names that no key can have. Folders that cannot be
    read are left out too: their blobs cannot be read either.
    """
    pending = [folder]
    while pending and not stopped():
        relative = pending.pop()
        for entry in _entries(os.path.join(layout.blobs, relative)):
            key = f"{relative}/{entry.name}" if relative else entry.name
            info = _info(entry)
            if info is None or not is_key(key):
                continue
            if stat.S_ISDIR(info.st_mode):
                pending.append(key)
            elif stat.S_ISREG(info.st_mode):
                yield Found(key, info.st_size, info.st_mtime, max(info.st_mtime, info.st_atime))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []


def _info(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
