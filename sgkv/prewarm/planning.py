"""What a copy has to do: found out before the first byte moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from sgkv.backends.base import Backend, BlobInfo, Status
from sgkv.prewarm.amounts import Amount, total, within
from sgkv.prewarm.pace import Control
from sgkv.prewarm.selection import Selection, UnavailableError, everything_in, hottest, listed

_PROBED = 1024
"""Keys in one question to a tier."""
_FEW = 256
"""So many blobs are asked for one by one where a tier has no index of its own; more are worth a listing."""
_BLOCK = 4096
_FILL_PERCENT = 95
"""Of a target's capacity; a disk tier that is full makes room down to there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a copy may move, and in which order."""

    max_bytes: int | None = None
    hottest_first: bool = False
    """The most recently used first; otherwise last, so that the target's order by age is the source's."""

    def beyond(self, moved: int) -> Limits:
        """What is left of them after `moved` bytes."""
        return self if self.max_bytes is None else replace(self, max_bytes=max(0, self.max_bytes - moved))


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The blobs to copy, in order, and what needs no copying."""

    todo: Sequence[BlobInfo]
    present: Amount
    left: Amount
    """Beyond `max_bytes` or the target's capacity."""
    namespaces: Mapping[str, Amount]
    """All that was selected."""


def plan_copy(
    source: Backend, target: Backend, selection: Selection, limits: Limits, control: Control
) -> CopyPlan:
    """Compare the two tiers. Raises UnavailableError where one does not answer."""
    selected = listed(source, selection, lambda: control.stopped)
    fitting = _fitting(selected, target.stats().capacity_bytes)
    there = _present(target, fitting, selection, control)
    missing = [blob for blob in fitting if blob.key not in there]
    if limits.hottest_first:
        missing.reverse()
    todo = missing[: within(missing, limits.max_bytes)]
    everything, now = total(selected), total(todo)
    present = total(fitting).minus(total(missing))
    return CopyPlan(
        todo,
        present=present,
        left=everything.minus(present).minus(now),
        namespaces=by_namespace(selected),
    )


def by_namespace(blobs: Sequence[BlobInfo]) -> dict[str, Amount]:
    items, sizes = Counter[str](), Counter[str]()
    for blob in blobs:
        name = blob.key.partition("/")[0]
        items[name] += 1
        sizes[name] += blob.size
    return {name: Amount(items[name], sizes[name]) for name in sorted(items)}


def _fitting(blobs: list[BlobInfo], capacity: int) -> list[BlobInfo]:
    """What a bounded target can hold without evicting some of it for the rest."""
    return hottest(blobs, capacity * _FILL_PERCENT // 100, unit=_BLOCK) if capacity else blobs


def _present(target: Backend, blobs: Sequence[BlobInfo], selection: Selection, control: Control) -> set[str]:
    if not target.capabilities.local_index and len(blobs) > _FEW:
        return {blob.key for blob in everything_in(target, selection)}
    found: set[str] = set()
    for start in range(0, len(blobs), _PROBED):
        keys = [blob.key for blob in blobs[start : start + _PROBED]]
        found.update(compress(keys, _probe(target, keys, control)))
    return found


def _probe(target: Backend, keys: Sequence[str], control: Control) -> list[bool]:
    for _ in control.attempts():
        answers, status = target.probe(keys)
        if status is Status.OK:
            return answers
    if control.stopped:
        return [False] * len(keys)
    raise UnavailableError(f"tier {target.name!r} does not say what it holds")
