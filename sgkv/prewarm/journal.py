"""A state file: what earlier runs have done, so that a killed one is not begun anew.

One line of JSON an item, each appended by one system call: SIGKILL loses none that was written, and
at most tears the last one if the machine itself goes down.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

_FORMAT = 1


class JournalError(Exception):
    """The state file cannot be used; the message says what to do."""


class Journal:
    """Digests of items that are done. `add` from any thread; one process at a time."""

    def __init__(self, path: Path, purpose: str, *, fresh: bool = False, dry_run: bool = False) -> None:
        """Open or create `path`; `fresh` forgets what it says, in a dry run without a change to the file.

        `purpose` tells kinds of state apart. Raises JournalError for a file that is something else,
        is in use by another process, or cannot be opened.
        """
        self.path = path
        self._purpose = purpose
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}: name another file with --state") from error
        with ExitStack() as undo:
            undo.callback(os.close, self._fd)
            self._lock()
            self._done = self._load(fresh, dry_run)
            undo.pop_all()

    def __contains__(self, digest: str) -> bool:
        return bytes.fromhex(digest) in self._done

    def add(self, digest: str, **facts: object) -> None:
        """Note that an item is done; `facts` are for people who read the file. Raises OSError."""
        self._append({"done": digest, **facts})
        self._done.add(bytes.fromhex(digest))

    def remove(self) -> None:
        """Delete the file: the work it was about is complete."""
        with suppress(FileNotFoundError):
            self.path.unlink()

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"{self.path}: another run uses this state file: wait for its end") from error

    def _load(self, fresh: bool, dry_run: bool) -> set[bytes]:
        """Nothing is changed before the file has shown that it is ours."""
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            first = file.readline()
            if first and first != self._line(self._heading):
                raise JournalError(
                    f"{self.path} is no state file of `prewarm {self._purpose}`: name another one"
                )
            done, whole = (set(), 0) if fresh else _read(file, len(first))
        if dry_run:
            return done
        os.ftruncate(self._fd, whole)
        if not whole:
            self._append(self._heading)
        return done

    @property
    def _heading(self) -> dict[str, object]:
        return {"sgkv": "prewarm state", "format": _FORMAT, "for": self._purpose}

    def _append(self, line: dict[str, object]) -> None:
        raw = self._line(line)
        if os.write(self._fd, raw) != len(raw):
            raise OSError(f"{self.path}: written in part only")

    @staticmethod
    def _line(content: dict[str, object]) -> bytes:
        return (json.dumps(content, separators=(",", ":")) + "\n").encode()


def _read(file: BinaryIO, whole: int) -> tuple[set[bytes], int]:
    """Digests of all whole lines that follow, and where these end: a torn last one does not count."""
    done: set[bytes] = set()
    for raw in file:
        if not raw.endswith(b"\n"):
            break
        whole += len(raw)
        with suppress(ValueError, KeyError, TypeError):  # a line that tells us nothing
            done.add(bytes.fromhex(json.loads(raw)["done"]))
    return done, whole
