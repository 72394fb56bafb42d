"""The folder: where a key's file lies, how a file gets there whole, and what a crash leaves.

blobs/{key}          published blobs; the key is the relative path
tmp/{host}.{pid}.{start}.{n}   blobs being written
trash/{n}            dropped prefixes and their files, until they are deleted
quarantine/{...}     the last few blobs that readers found corrupt
evict.lock           held (flock) by the process that is making room
"""

# Paths are plain strings here: a Path a call costs more than some of the system calls.
# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH110, PTH116, PTH118, PTH120

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import time
from contextlib import suppress
from functools import lru_cache
from itertools import count
from pathlib import Path

from sgkv.backends import failpoints

_KEY = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.=+@,-]{0,199}/)*[A-Za-z0-9_][A-Za-z0-9_.=+@,-]{0,199}")
_MAX_KEY = 1000
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
"""linux/fs.h; supported by the VFS for every local file system since Linux 4.9."""
_FOREIGN_TEMP_SECONDS = 3600.0
"""Age at which a temporary file of another host counts as left behind."""

_temp_numbers = count()
_libc = ctypes.CDLL(None, use_errno=True)


class Layout:
    """Paths below one root. Methods raise OSError as the system does."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.blobs = os.path.join(self.root, "blobs")
        self.tmp = os.path.join(self.root, "tmp")
        self.trash = os.path.join(self.root, "trash")
        self.quarantine = os.path.join(self.root, "quarantine")
        self.lock = os.path.join(self.root, "evict.lock")

    def create(self) -> None:
        """Make the folders that are missing."""
        for folder in (self.blobs, self.tmp, self.trash, self.quarantine):
            os.makedirs(folder, exist_ok=True)

    def path_of(self, key: str) -> str:
        """The file of `key`. Raises ValueError on a key that is not a safe relative path."""
        if not is_key(key):
            raise ValueError(f"not a blob key: {key!r} (letters, digits, _.=+@,- in segments of up to 200)")
        return f"{self.blobs}/{key}"

    def temp_path(self) -> str:
        """A name no other writer uses; open it with O_EXCL all the same."""
        return f"{self.tmp}/{_process_tag(os.getpid())}.{next(_temp_numbers)}"

    def remove_dead_temps(self) -> None:
        """Delete what writers left behind that no longer run."""
        with suppress(OSError), os.scandir(self.tmp) as entries:
            for entry in entries:
                with suppress(OSError):
                    if _is_dead(entry):
                        os.unlink(entry.path)


def is_key(key: str) -> bool:
    """Whether `key` is a relative path of safe segments, none of which begins with a dot."""
    return len(key) <= _MAX_KEY and _KEY.fullmatch(key) is not None


def publish(temp: str, final: str) -> bool:
    """Move a whole file to its place unless there is one; True if it was moved.

    Makes the parent folders when they are missing, which they also are right after a prefix was
    dropped. On a file system that cannot refuse to replace, a racing writer of the same key
    replaces equal bytes by equal bytes.
    """
    for last_try in (False, False, False, False, True):
        try:
            return _rename_new(temp, final)
        except FileNotFoundError:
            if last_try or not os.path.exists(temp):
                raise
            with suppress(FileNotFoundError, FileExistsError):  # evictors remove folders that become empty
                os.makedirs(os.path.dirname(final), exist_ok=True)
            failpoints.passing("put.folder")
    raise AssertionError("unreachable")


def _rename_new(temp: str, final: str) -> bool:
    old, new = os.fsencode(temp), os.fsencode(final)
    if _libc.renameat2(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    if code in (errno.EINVAL, errno.ENOSYS):
        return _rename_unless_there(temp, final)
    raise OSError(code, os.strerror(code), temp, None, final)


def _rename_unless_there(temp: str, final: str) -> bool:
    if os.path.exists(final):
        return False
    os.rename(temp, final)
    return True


@lru_cache(maxsize=4)
def _process_tag(pid: int) -> str:
    return f"{_host()}.{pid}.{_start_ticks(pid)}"


@lru_cache(maxsize=1)
def _host() -> str:
    """The host as far as process ids go: containers may share a name but not a pid namespace."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{socket.gethostname()}-{namespace}"


def _start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since boot (proc(5), stat field 22); 0 if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def _is_dead(entry: os.DirEntry[str]) -> bool:
    host, *rest = entry.name.rsplit(".", 3)
    if host == _host() and len(rest) == 3 and rest[0].isdigit():
        return rest[1] != str(_start_ticks(int(rest[0])))
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > _FOREIGN_TEMP_SECONDS
