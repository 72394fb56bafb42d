"""Commands under way at one store, and what it has to tell of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Literal

from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.control.doing import CannotError, do
from sgkv.control.wire import Command, Progress
from sgkv.prewarm.outcomes import Ended
from sgkv.prewarm.pace import Control
from sgkv.prewarm.selection import UnavailableError
from sgkv.store.store import Store

End = Literal["done", "failed", "cancelled"]

_WAITING = 64
_PATIENCE = 60.0
"""Seconds that a copy keeps trying a tier that does not answer."""


class Worker:
    """One thread that follows commands one after the other; others tell it and ask it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = WorkerPool(1, "sgkv-control-work", backlog=_WAITING)
        self._lock = threading.Lock()
        self._told: dict[str, Progress] = {}
        """Of every command whose end the controller may not have heard of."""
        self._controls: dict[str, Control] = {}

    def take(self, commands: Iterable[Command]) -> None:
        """Begin what is new, stop what is cancelled; what is known already changes nothing."""
        for command in commands:
            if command.cancelled:
                self._cancel(command.id)
            elif command.id not in self._told:
                self._begin(command)

    def progress(self) -> list[Progress]:
        with self._lock:
            return list(self._told.values())

    def heard(self, told: Sequence[Progress]) -> None:
        """The controller knows of these; what has ended is forgotten."""
        with self._lock:
            for one in told:
                if one.state != "running" and self._told.get(one.id) == one:
                    del self._told[one.id]

    def close(self, timeout: float) -> None:
        for control in list(self._controls.values()):
            control.stop(Ended.INTERRUPTED)
        self._pool.close(timeout)

    def _begin(self, command: Command) -> None:
        self._controls[command.id] = Control(patience=_PATIENCE)
        self._tell(Progress(command.id, "running", 0, len(command.hashes)))
        if self._pool.submit(lambda: self._follow(command)) is None:
            self._end(command.id, "failed", "this store has as many commands to follow as it takes")

    def _cancel(self, id_: str) -> None:
        control = self._controls.get(id_)
        if control is not None:
            control.stop(Ended.INTERRUPTED)
        elif id_ not in self._told:
            self._tell(Progress(id_, "cancelled"))

    def _follow(self, command: Command) -> None:
        control = self._controls[command.id]
        ended: End = "failed"
        why = "an error of the store's, which its log has"
        with contained(f"the command {command.doing}", self._store.counters):
            try:
                if not control.stopped:
                    do(self._store, command, control, lambda done, of: self._advance(command.id, done, of))
                ended, why = "cancelled" if control.stopped else "done", ""
            except (CannotError, UnavailableError) as error:
                why = str(error)
        self._end(command.id, ended, why)

    def _advance(self, id_: str, done: int, total: int) -> None:
        self._tell(Progress(id_, "running", done, total))

    def _end(self, id_: str, state: End, why: str) -> None:
        with self._lock:
            last = self._told[id_]
            self._told[id_] = Progress(id_, state, last.done, last.total, why)
            del self._controls[id_]

    def _tell(self, told: Progress) -> None:
        with self._lock:
            self._told[told.id] = told
