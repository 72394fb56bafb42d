"""What the machine has to give: memory and file systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where cgroup v2 and v1 tell a container how much memory it may have."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path on its file system, whether it exists yet or not."""

    total: int
    """Bytes of the file system."""
    free: int
    """Bytes of it that this user may still write."""
    is_folder: bool
    """False where the path, or what should be a folder above it, is a file."""
    writable: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that automatic values are computed from; tests state their own."""

    memory: int
    """Bytes this process may use: the machine's, or less in a container."""
    cache_home: Path
    place: Callable[[Path], Place]
    stored: Callable[[Path, int], int]
    """Bytes in the files below a path, counted no further than a limit."""
    runtime_home: Path = Path("/run")
    """Where sockets of this user belong."""


def this_machine() -> Machine:
    """The machine we run on. Reads /proc and /sys, starts nothing."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or home)
    return Machine(_memory(), home, _place, _stored, runtime)


def _memory() -> int:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_container_limits()])


def _container_limits() -> Iterator[int]:
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)


def _place(path: Path) -> Place:
    """Facts of the nearest thing that exists at or above `path`."""
    existing = next(candidate for candidate in (path, *path.parents) if os.path.lexists(candidate))
    facts = os.statvfs(existing if existing.exists() else existing.parent)
    return Place(
        total=facts.f_frsize * facts.f_blocks,
        free=facts.f_frsize * facts.f_bavail,
        is_folder=existing.is_dir(),
        writable=os.access(existing, os.W_OK | os.X_OK),
    )


def _stored(path: Path, limit: int) -> int:
    size = 0
    folders = [str(path)]
    while folders and size < limit:
        size += _sizes(folders.pop(), folders)
    return size


def _sizes(folder: str, found: list[str]) -> int:
    """Bytes in the files of `folder`; its folders are added to `found`."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return 0
    found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sum(_size(entry) for entry in entries if entry.is_file(follow_symlinks=False))


def _size(entry: os.DirEntry[str]) -> int:
    """Another process may have deleted it since it was listed."""
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
