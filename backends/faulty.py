"""A backend that fails on purpose, for tests and for chaos runs."""

from __future__ import annotations

import enum
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sgkv.backends.base import Backend, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.hooks import checked
from sgkv.backends.wrapper import Wrapper


class Fault(enum.Enum):
    """What goes wrong."""

    RAISE = "raise"
    """The call raises `InjectedError`."""
    STATUS = "status"
    """Every item of the batch ends with the rule's status; `contains` and `delete` answer False."""
    SHORT = "short"
    """`get`: the last byte of every item is missing, which is reported."""
    FLIP = "flip"
    """`get`: one bit of every item is wrong, which is not reported."""
    LOSE = "lose"
    """`put`: answers OK and stores nothing."""
    HANG = "hang"
    """The call does nothing until `Faulty.release`, then goes on."""


class InjectedError(Exception):
    """Raised by `Fault.RAISE`."""


@dataclass(frozen=True, slots=True)
class FaultRule:
    """When a fault strikes: a script with `skip` and `times`, a chance with `probability`."""

    fault: Fault
    ops: frozenset[str] = frozenset({"contains", "put", "get", "delete"})
    probability: float = 1.0
    skip: int = 0
    """Matching calls that pass before the first that may be struck."""
    times: int | None = None
    """Calls to strike at most; None is no limit."""
    status: Status = Status.ERROR
    """For `Fault.STATUS`."""


class Faulty(Wrapper):
    """Applies the first rule that strikes to each call of `contains`, `put`, `get` and `delete`.

    `delete_prefix` is a call of `delete`.
    """

    def __init__(self, inner: Backend, rules: Sequence[FaultRule] = (), *, seed: int = 0) -> None:
        super().__init__(inner)
        self._random = random.Random(seed)  # noqa: S311 - faults need no secrecy
        self._lock = threading.Lock()
        self._hanging = threading.Semaphore(0)
        self._released = threading.Event()
        self.set_rules(rules)

    def set_rules(self, rules: Sequence[FaultRule]) -> None:
        """Replace the rules, and count their calls from zero."""
        with self._lock:
            self._rules = list(rules)
            self._seen = [0] * len(self._rules)
            self._struck = [0] * len(self._rules)

    def release(self) -> None:
        """Let every call that hangs, or would hang later, go on."""
        self._released.set()

    def wait_hanging(self, timeout: float) -> bool:
        """Wait until one more call hangs; False after `timeout` seconds."""
        return self._hanging.acquire(timeout=timeout)

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        rule = self._strike("contains")
        if rule is not None and _ends(rule):
            return [False] * len(keys), rule.status
        return self.inner.probe(keys, deadline)

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        rule = self._strike("put")
        if rule is not None and _ends(rule):
            return [rule.status] * len(items)
        if rule is not None and rule.fault is Fault.LOSE:
            return [Status.OK] * len(items)
        return self.inner.put(items, deadline)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        rule = self._strike("get")
        if rule is not None and _ends(rule):
            return [rule.status] * len(items)
        if rule is not None and rule.fault is Fault.FLIP:
            items = [GetItem(item.key, item.parts, partial(self._flip, item)) for item in items]
        statuses = self.inner.get(items, deadline)
        if rule is not None and rule.fault is Fault.SHORT:
            return [Status.SHORT if status is Status.OK else status for status in statuses]
        return statuses

    def delete(self, keys: Sequence[str]) -> list[bool]:
        rule = self._strike("delete")
        return [False] * len(keys) if _ends(rule) else self.inner.delete(keys)

    def delete_prefix(self, prefix: str) -> bool:
        rule = self._strike("delete")
        return False if _ends(rule) else self.inner.delete_prefix(prefix)

    def _strike(self, op: str) -> FaultRule | None:
        rule = self._draw(op)
        if rule is None:
            return None
        if rule.fault is Fault.RAISE:
            raise InjectedError(f"injected into {op} of {self.name}")
        if rule.fault is Fault.HANG:
            self._hanging.release()
            self._released.wait()
        return rule

    def _draw(self, op: str) -> FaultRule | None:
        with self._lock:
            for at, rule in enumerate(self._rules):
                if op in rule.ops and self._is_due(at, rule):
                    self._struck[at] += 1
                    return rule
        return None

    def _is_due(self, at: int, rule: FaultRule) -> bool:
        self._seen[at] += 1
        if self._seen[at] <= rule.skip or self._struck[at] == rule.times:
            return False
        return rule.probability >= 1.0 or self._random.random() < rule.probability

    def _flip(self, item: GetItem) -> bool:
        with self._lock:
            part = self._random.choice([part for part in item.parts if len(part.buffer)])
            at, bit = self._random.randrange(len(part.buffer)), self._random.randrange(8)
        part.buffer[at] ^= 1 << bit
        return checked(item)


def _ends(rule: FaultRule | None) -> bool:
    return rule is not None and rule.fault is Fault.STATUS
