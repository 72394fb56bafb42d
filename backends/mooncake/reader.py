"""From the pool into staging, and from there into the caller's buffers while the caller waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sgkv.backends.base import Buffer, GetItem, Status
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import checked
from sgkv.backends.mooncake.client import Client, Connection
from sgkv.backends.mooncake.codes import TRANSFER_FAILED, read_status, settled
from sgkv.backends.mooncake.keys import native_key
from sgkv.backends.mooncake.staging import SLOT_BYTES, Slot, Staging
from sgkv.backends.workers import WorkerPool, spread_until

_LEAST_BYTES, _MOST_BYTES = 1 << 20, SLOT_BYTES // 2
"""Of a native call: less does not pay for its round trip to the master, more leaves the cache before it is
copied."""
_MOST_RANGES = 8
"""Ranges a call: with a node that hangs, the library waits for each of them in turn."""


@dataclass(slots=True)
class Range:
    """A run of one blob that fits a slot, and where its bytes go from there."""

    item: int
    nth: int
    """Among the ranges of its item."""
    offset: int
    size: int = 0
    parts: int = 0
    """How many parts of its item are filled when this range and those before it are."""
    targets: list[Buffer] = field(default_factory=list)


@dataclass(slots=True)
class Load:
    """Ranges of one native call, one after the other in the slot."""

    ranges: list[Range] = field(default_factory=list)
    size: int = 0


class Reader:
    """Reads batches; the counters are its own."""

    def __init__(self, client: Client, staging: Staging, pool: WorkerPool) -> None:
        self._client = client
        self._staging = staging
        self._pool = pool
        # More transfers than cores at once end together, and then nothing is left to copy meanwhile.
        self._threads = min(pool.threads, max(2, os.cpu_count() or 1))

    def get(self, items: Sequence[GetItem], deadline: Deadline) -> tuple[list[Status], set[str]]:
        """Statuses, and the keys whose node could not deliver."""
        batch = _Batch(items, deadline)
        loads = plan(items, self._share(items))
        spread_until(
            self._pool, len(loads), lambda at: self._fetch(batch, loads[at]), self._threads, deadline
        )
        return batch.conclusion(self._client.why_not)

    def _share(self, items: Sequence[GetItem]) -> int:
        """Bytes a native call: so that a thread has two, and one is on its way while others are copied."""
        size = sum(len(part.buffer) for item in items for part in item.parts)
        return min(_MOST_BYTES, max(_LEAST_BYTES, -(-size // (2 * self._threads))))

    def _fetch(self, batch: _Batch, load: Load) -> None:
        with self._client.using() as connection:
            if connection is None:
                batch.fail(load, self._client.why_not)
                return
            slot = self._staging.take(connection, batch.deadline)
            if slot is None:
                return
            codes: list[int] = []
            try:
                codes = _call(connection, slot, batch.items, load)
                batch.land(slot, load, codes)
            finally:
                self._staging.give(slot, settled=bool(codes) and all(map(settled, codes)))


@dataclass(slots=True)
class _Front:
    """How far an item is filled from its beginning on."""

    next: int = 0
    """The first range that is missing."""
    parts: int = 0
    arrived: dict[int, int] = field(default_factory=dict)
    """Ranges beyond it, with their `parts`."""
    busy: bool = False


class _Batch:
    """One `get` under way, worked on by several threads."""

    def __init__(self, items: Sequence[GetItem], deadline: Deadline) -> None:
        self.items = items
        self.deadline = deadline
        self._lock = threading.Lock()
        self._left = [sum(len(part.buffer) for part in item.parts) for item in items]
        self._bad: list[Status | None] = [None] * len(items)
        self._done: list[Status | None] = [None] * len(items)
        self._unreachable: set[str] = set()
        self._fronts = [_Front() for _ in items]
        for item in items:
            if item.progress is not None:
                item.progress(0)

    def fail(self, load: Load, status: Status) -> None:
        with self._lock:
            for piece in load.ranges:
                self._bad[piece.item] = self._bad[piece.item] or status

    def land(self, slot: Slot, load: Load, codes: Sequence[int]) -> None:
        """Copy what came, and check each item whose last bytes these are."""
        at = 0
        for piece, code in zip(load.ranges, codes, strict=True):
            status = read_status(code, piece.size)
            if status is not Status.OK:
                self._note(piece, code, status)
            elif not self._copy(piece, slot.view[at : at + piece.size]):
                return
            at += piece.size

    def conclusion(self, otherwise: Status) -> tuple[list[Status], set[str]]:
        """What became of each item up to now; late threads change nothing any more."""
        late = self.deadline.over
        with self._lock:
            rows = zip(self._done, self._bad, strict=True)
            unfinished = Status.TIMEOUT if late else otherwise
            return [done or bad or unfinished for done, bad in rows], set(self._unreachable)

    def _note(self, piece: Range, code: int, status: Status) -> None:
        with self._lock:
            self._bad[piece.item] = self._bad[piece.item] or status
            if code == TRANSFER_FAILED:
                self._unreachable.add(self.items[piece.item].key)

    def _copy(self, piece: Range, arrived: Buffer) -> bool:
        with landing(self.deadline) as admitted:
            if not admitted:
                return False
            at = 0
            for target in piece.targets:
                copy(target, arrived[at : at + len(target)])
                at += len(target)
            self._tell(piece)
            if self._last(piece):
                ok = checked(self.items[piece.item])
                with self._lock:
                    self._done[piece.item] = Status.OK if ok else Status.CORRUPT
        return True

    def _tell(self, piece: Range) -> None:
        """Let the item's owner look at what is filled without a gap; by one thread at a time."""
        progress, front = self.items[piece.item].progress, self._fronts[piece.item]
        if progress is None:
            return
        with self._lock:
            front.arrived[piece.nth] = piece.parts
            while front.next in front.arrived:
                front.parts = front.arrived.pop(front.next)
                front.next += 1
            if front.busy:
                return
            front.busy, filled = True, front.parts
        progress(filled)
        with self._lock:
            front.busy = False

    def _last(self, piece: Range) -> bool:
        with self._lock:
            self._left[piece.item] -= piece.size
            return not self._left[piece.item] and self._bad[piece.item] is None


def plan(items: Sequence[GetItem], most_bytes: int) -> list[Load]:
    """Cut items into native calls of so many bytes; neighbours in a blob become one range."""
    loads = [Load()]
    ranges = [0] * len(items)
    for item, offset, target, parts in _pieces(items, most_bytes):
        load = loads[-1]
        last = load.ranges[-1] if load.ranges else None
        neighbours = last is not None and last.item == item and last.offset + last.size == offset
        if load.size + len(target) > most_bytes or (not neighbours and len(load.ranges) == _MOST_RANGES):
            load, neighbours = Load(), False
            loads.append(load)
        if not neighbours:
            load.ranges.append(Range(item, ranges[item], offset))
            ranges[item] += 1
        load.ranges[-1].targets.append(target)
        load.ranges[-1].size += len(target)
        load.ranges[-1].parts = parts
        load.size += len(target)
    return loads if loads[-1].ranges else []


def _pieces(items: Sequence[GetItem], most: int) -> Iterator[tuple[int, int, Buffer, int]]:
    """(item, offset in the blob, where to, parts that are whole with it)"""
    for at, item in enumerate(items):
        for part, (offset, buffer) in enumerate(item.parts):
            for start in range(0, len(buffer), most):
                ends = start + most >= len(buffer)
                yield at, offset + start, buffer[start : start + most], part + ends


def _call(connection: Connection, slot: Slot, items: Sequence[GetItem], load: Load) -> list[int]:
    """One code a range. Each has its key, also where neighbours share it."""
    ends, at = [], 0
    for piece in load.ranges:
        ends.append([[at]])
        at += piece.size
    keys = [native_key(items[piece.item].key) for piece in load.ranges]
    offsets = [[piece.offset] for piece in load.ranges]
    sizes = [[piece.size] for piece in load.ranges]
    into = [start for (start,) in ends]
    (rows,) = connection.store.get_into_ranges([slot.address], [keys], [into], [offsets], [sizes])
    return [row[0] for row in rows]
