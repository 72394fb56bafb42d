"""Where benchmarks write files."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from sgkv.config.machine import this_machine

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it


def disk_home() -> Path:
    """``TMPDIR`` where that is set, else the cache folder: /tmp is memory on many machines."""
    return Path(os.environ.get("TMPDIR") or this_machine().cache_home)


def memory_home() -> Path:
    """A file system without a device where there is one, else as `disk_home`."""
    return _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else disk_home()


class Scratch:
    """Empty folders for the asking. All are kept until the end of the run.

    Files are not deleted before that either, only emptied (`empty_files`): ext4 passes over inodes
    that were given back within the last half minute (its ``recently_deleted``), one by one, and
    after a few thousand deletions takes longer to create a file than to write a megabyte into it.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._homes: dict[Path, Path] = {}
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stack.close()

    def disk(self) -> Path:
        """An empty folder on the file system that is measured."""
        return self._folder(disk_home())

    def memory(self) -> Path:
        """An empty folder without a device below it, to see what our own code costs."""
        return self._folder(memory_home())

    def _folder(self, home: Path) -> Path:
        if home not in self._homes:
            home.mkdir(parents=True, exist_ok=True)
            made = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sgkv-bench-", dir=home))
            self._homes[home] = Path(made)
        folder = self._homes[home] / str(next(self._numbers))
        folder.mkdir()
        return folder


def empty_files(folder: Path) -> None:
    """Give back what the files below `folder` hold, in memory and on disk, but not the files."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            os.truncate(path, 0)
