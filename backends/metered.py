"""What goes through a backend, told to an observer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sgkv.backends.base import Backend, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.wrapper import Wrapper


class Observer(Protocol):
    """Receives one call for each batch, in the thread that made it. Must be quick and not raise."""

    def observe(self, op: str, seconds: float, outcomes: Mapping[Status, int], moved: int) -> None:
        """`op` is a method's name; `outcomes` counts items by status; `moved` is bytes.

        `contains` and `delete` count OK where the answer was True and ABSENT where it was False;
        a `contains` that could not be asked counts why.
        `moved` counts items that ended OK, so not what `put` found to exist already.
        """


class Metered(Wrapper):
    """Times `contains`, `put`, `get` and `delete`."""

    def __init__(
        self, inner: Backend, observer: Observer, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`clock` gives seconds."""
        super().__init__(inner)
        self._observer = observer
        self._clock = clock

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        began = self._clock()
        found, status = self.inner.probe(keys, deadline)
        outcomes: dict[Status, int] = _answers(found) if status is Status.OK else {status: len(found)}
        self._tell("contains", began, outcomes, 0)
        return found, status

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        began = self._clock()
        statuses = self.inner.put(items, deadline)
        rows = zip(items, statuses, strict=True)
        moved = sum(item.size for item, status in rows if status is Status.OK)
        self._tell("put", began, Counter(statuses), moved)
        return statuses

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        began = self._clock()
        statuses = self.inner.get(items, deadline)
        rows = zip(items, statuses, strict=True)
        moved = sum(len(part.buffer) for item, status in rows if status is Status.OK for part in item.parts)
        self._tell("get", began, Counter(statuses), moved)
        return statuses

    def delete(self, keys: Sequence[str]) -> list[bool]:
        began = self._clock()
        deleted = self.inner.delete(keys)
        self._tell("delete", began, _answers(deleted), 0)
        return deleted

    def _tell(self, op: str, began: float, outcomes: Mapping[Status, int], moved: int) -> None:
        self._observer.observe(op, self._clock() - began, outcomes, moved)


def _answers(found: Sequence[bool]) -> dict[Status, int]:
    yes = sum(found)
    counts: dict[Status, int] = {Status.OK: yes, Status.ABSENT: len(found) - yes}
    return {status: count for status, count in counts.items() if count}
