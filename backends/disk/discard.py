"""Blobs on their way out: dropped prefixes, and files that readers found corrupt."""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH104, PTH106, PTH108, PTH116, PTH118, PTH208

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from sgkv.backends.disk.layout import Layout

_QUARANTINE_FILES = 16
_QUARANTINE_BYTES = 256 << 20

_numbers = count()


def move_to_trash(layout: Layout, path: str) -> None:
    """Take a folder out of reach in one step; nothing happens where there is none."""
    target = os.path.join(layout.trash, f"{time.time_ns()}.{os.getpid()}.{next(_numbers)}")
    with suppress(FileNotFoundError):
        os.rename(path, target)


def empty_trash(layout: Layout, stopped: Callable[[], bool]) -> None:
    """Delete what was dropped, until done or `stopped`; the next start goes on with it."""
    for folder, folders, files in os.walk(layout.trash, topdown=False):
        for name in files:
            if stopped():
                return
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
        for name in folders:
            with suppress(OSError):
                os.rmdir(os.path.join(folder, name))


class Quarantine:
    """Keeps the last few bad files for a person to look at: at most 16, and 256 MiB."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def take(self, key: str) -> bool:
        """Move a published file here; False where there is none. Raises OSError as rename does."""
        source = self._layout.path_of(key)
        name = f"{time.time_ns()}.{key.replace('/', '~')[-200:]}"
        try:
            os.rename(source, os.path.join(self._layout.quarantine, name))
        except FileNotFoundError:
            return False
        self._trim()
        return True

    def _trim(self) -> None:
        """Delete the oldest until the rest is within bounds."""
        kept = 0
        newest_first = sorted(os.listdir(self._layout.quarantine), reverse=True)
        for at, name in enumerate(newest_first):
            path = os.path.join(self._layout.quarantine, name)
            with suppress(FileNotFoundError):  # two processes may trim at once
                kept += os.stat(path).st_size
                if at >= _QUARANTINE_FILES or kept > _QUARANTINE_BYTES:
                    os.unlink(path)
