"""Blobs on their way out: dropped prefixes, and files that readers found corrupt."""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH103, PTH104, PTH106, PTH108, PTH116, PTH118, PTH208

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import wait
from contextlib import suppress
from itertools import count

from sgkv.backends import failpoints
from sgkv.backends.disk.layout import Layout
from sgkv.backends.workers import WorkerPool, in_background

_QUARANTINE_FILES = 16
_QUARANTINE_BYTES = 256 << 20

_numbers = count()


class Trash:
    """Dropped folders: out of reach at once, deleted by a thread of its own."""

    def __init__(self, layout: Layout, name: str) -> None:
        """Begins with what an earlier process left."""
        self._layout = layout
        self._stop = threading.Event()
        self.pool = WorkerPool(1, f"sgkv-{name}-trash", backlog=1)
        self._emptying = in_background(self.pool, self._empty)

    def drop(self, folder: str) -> None:
        """Take `folder` out of reach in one step; nothing happens where there is none.

        Raises OSError as rename does.
        """
        os.makedirs(self._layout.trash, exist_ok=True)
        target = os.path.join(self._layout.trash, f"{time.time_ns()}.{os.getpid()}.{next(_numbers)}")
        with suppress(FileNotFoundError):
            os.rename(folder, target)
        failpoints.passing("prefix.moved")
        self._emptying = in_background(self.pool, self._empty) or self._emptying

    def wait(self, timeout: float) -> bool:
        """Wait until everything dropped so far is deleted; False after `timeout` seconds."""
        return self._emptying is None or bool(wait([self._emptying], timeout).done)

    def close(self, timeout: float) -> None:
        """Stop deleting; the next process goes on with it."""
        self._stop.set()
        self.pool.close(timeout)

    def _empty(self) -> None:
        for folder, folders, files in os.walk(self._layout.trash, topdown=False):
            for name in files:
                if self._stop.is_set():
                    return
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))
                failpoints.passing("trash.unlinked")
            for name in folders:
                with suppress(OSError):
                    os.rmdir(os.path.join(folder, name))
        failpoints.passing("trash.emptied")


def remove_empty_parents(layout: Layout, paths: Iterable[str]) -> None:
    """Delete the folders that held `paths` and hold nothing any more, up to `blobs/`."""
    for folder in {path.rpartition("/")[0] for path in paths}:
        with suppress(OSError):  # not empty, which ends the way up; or gone
            _remove_upwards(folder, layout.blobs)


def _remove_upwards(folder: str, top: str) -> None:
    while folder != top:
        os.rmdir(folder)
        folder = folder.rpartition("/")[0]


class Quarantine:
    """Keeps the last few bad files for a person to look at: at most 16, and 256 MiB."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def take(self, key: str) -> bool:
        """Move a published file here; False where there is none. Raises OSError as rename does.

        Where somebody removed `quarantine/`, the file is deleted instead: it must not be read again.
        """
        source = self._layout.path_of(key)
        name = f"{time.time_ns()}.{key.replace('/', '~')[-200:]}"
        try:
            os.rename(source, os.path.join(self._layout.quarantine, name))
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                os.unlink(source)
                return True
            return False
        failpoints.passing("quarantine.moved")
        trim_quarantine(self._layout)
        failpoints.passing("quarantine.trimmed")
        return True


def trim_quarantine(layout: Layout) -> None:
    """Delete the oldest files there until the rest is within bounds. Raises OSError as listing does."""
    kept = 0
    newest_first = sorted(os.listdir(layout.quarantine), reverse=True)
    for at, name in enumerate(newest_first):
        path = os.path.join(layout.quarantine, name)
        with suppress(FileNotFoundError):  # two processes may trim at once
            kept += os.stat(path).st_size
            if at >= _QUARANTINE_FILES or kept > _QUARANTINE_BYTES:
                os.unlink(path)
