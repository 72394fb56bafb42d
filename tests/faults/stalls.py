"""Devices that hang: any call of a backend, or one file."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from sgkv.backends.base import Backend, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper

_LIMIT = 60.0
"""Seconds after which a hang ends even if the test has forgotten it."""


class Stalled(Wrapper):
    """While `stalled`, whatever does I/O (or `only` these calls) waits until `let_go`."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.stalled = False
        self.only: frozenset[str] | None = None
        self._go = threading.Event()

    def let_go(self) -> None:
        """End the hangs of now; later calls hang again."""
        go, self._go = self._go, threading.Event()
        go.set()

    def stop(self) -> None:
        self.stalled = False
        self.let_go()

    def _wait(self, call: str) -> None:
        go = self._go
        if self.stalled and (self.only is None or call in self.only):
            go.wait(_LIMIT)

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        self._wait("probe")
        return self.inner.probe(keys, deadline)

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        self._wait("put")
        return self.inner.put(items, deadline)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        self._wait("get")
        return self.inner.get(items, deadline)

    def delete(self, keys: Sequence[str]) -> list[bool]:
        self._wait("delete")
        return self.inner.delete(keys)

    def delete_prefix(self, prefix: str) -> bool:
        self._wait("delete_prefix")
        return self.inner.delete_prefix(prefix)

    def touch(self, keys: Sequence[str]) -> None:
        self._wait("touch")
        self.inner.touch(keys)

    def quarantine(self, keys: Sequence[str]) -> None:
        self._wait("quarantine")
        self.inner.quarantine(keys)


class HungFile:
    """A blob's file on a disk that hangs: a FIFO in its place, whose open() never returns."""

    def __init__(self, path: Path, handle: Path) -> None:
        """`handle` is a second name of the FIFO, which stays when the store moves the first away."""
        path.unlink()
        os.mkfifo(handle)
        os.link(handle, path)
        self._path, self._handle = path, handle

    def release(self) -> None:
        """Take it away and let everything go that waits for it."""
        self._path.unlink(missing_ok=True)
        os.close(os.open(self._handle, os.O_RDWR | os.O_NONBLOCK))
