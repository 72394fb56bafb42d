"""What stores were told to do, and how far they are."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from sgkv.control.wire import Command, Progress

State = Literal["running", "done", "failed", "cancelled"]
_KEPT = 1024
_WAITING = 64
"""Commands that one store has not told the end of."""


class TooManyError(Exception):
    """The text says of what."""


class Step(NamedTuple):
    """One command and who is to follow it."""

    instance: str
    command: Command


@dataclass(slots=True)
class Operation:
    """Stages one after the other, the steps of each side by side. The first step that fails ends it."""

    id: str
    what: str
    tenants: frozenset[str]
    stages: list[list[Step]]
    key: str
    """Of its caller, so that asking twice does nothing twice."""
    began: float
    """Unix seconds."""
    state: State = "running"
    why: str = ""
    progress: dict[str, Progress] = field(default_factory=dict)

    @property
    def current(self) -> list[Step]:
        """Steps that have not ended; none once the operation has."""
        if self.state != "running":
            return []
        for stage in self.stages:
            left = [step for step in stage if not _ended(self.progress.get(step.command.id))]
            if left:
                return left
        return []

    def note(self, told: Progress) -> None:
        if self.state != "running":
            return
        self.progress[told.id] = told
        if told.state in ("failed", "cancelled"):
            self.state, self.why = told.state, told.why
        elif not self.current:
            self.state = "done"

    def cancel(self) -> None:
        """What runs is told to stop; what has not begun never does."""
        if self.state == "running":
            stop = [step._replace(command=_cancelled(step.command)) for step in self.current]
            self.stages = [stop]


class Operations:
    """The latest, running ones before others. Of the event loop alone."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._all: dict[str, Operation] = {}

    def start(
        self, what: str, tenants: frozenset[str], stages: Sequence[list[Step]], key: str = ""
    ) -> Operation:
        """Begin, or find what was begun with the same key. Raises TooManyError."""
        if key and (known := next((one for one in self._all.values() if one.key == key), None)):
            return known
        self._make_room()
        for step in (step for stage in stages for step in stage):
            if sum(1 for _ in self.steps_of(step.instance)) >= _WAITING:
                raise TooManyError(f"{step.instance} has {_WAITING} commands to follow: wait for some")
        operation = Operation(uuid.uuid4().hex, what, tenants, [*filter(None, stages)], key, self._clock())
        if not operation.stages:
            operation.state = "done"
        self._all[operation.id] = operation
        return operation

    def get(self, id_: str) -> Operation | None:
        return self._all.get(id_)

    def __iter__(self) -> Iterator[Operation]:
        return reversed(self._all.values())

    def steps_of(self, instance: str) -> Iterator[Step]:
        """What a store is to do now."""
        for operation in self._all.values():
            for step in operation.current:
                if step.instance == instance:
                    yield step

    def orders(self, instance: str) -> list[Command]:
        """What a store is to be told: what it has not answered, and what it is to stop."""
        told = {id_ for operation in self._all.values() for id_ in operation.progress}
        now = [step.command for step in self.steps_of(instance)]
        return [one for one in now if one.cancelled or one.id not in told]

    def note(self, instance: str, told: Sequence[Progress]) -> None:
        """A store says how far it is; of commands that are another's it can say nothing."""
        by_id = {one.id: one for one in told}
        for operation in list(self._all.values()):
            for step in operation.current:
                if step.instance == instance and step.command.id in by_id:
                    operation.note(by_id[step.command.id])

    def abandon(self, present: Callable[[str], bool]) -> None:
        """Fail what waits for a store that is gone."""
        for operation in self._all.values():
            gone = [step.instance for step in operation.current if not present(step.instance)]
            if gone:
                operation.state, operation.why = "failed", f"{gone[0]} has gone"

    def _make_room(self) -> None:
        if len(self._all) < _KEPT:
            return
        ended = next((one.id for one in self._all.values() if one.state != "running"), None)
        if ended is None:
            raise TooManyError(f"{_KEPT} operations run: wait for some")
        del self._all[ended]


def command(doing: str, **details: object) -> Command:
    """With an id of its own."""
    return msgspec.convert({"id": uuid.uuid4().hex, "doing": doing, **details}, Command)


def _cancelled(one: Command) -> Command:
    return msgspec.structs.replace(one, cancelled=True, hashes=[])


def _ended(told: Progress | None) -> bool:
    return told is not None and told.state != "running"
