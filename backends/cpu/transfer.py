"""Bytes between the arena and the caller's buffers, several blobs at a time.

A large copy leaves nothing of the interpreter in the processor's cache, and whatever Python runs after it
is several times as slow. So all that can be known before is worked out for the whole batch first; between
two copies there is only the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from sgkv.backends.base import Buffer, GetItem, Part, PutItem, Status
from sgkv.backends.cpu.copying import Move, address_of, fitting, move_all, writable_address_of
from sgkv.backends.cpu.index import Entry
from sgkv.backends.deadline import Deadline
from sgkv.backends.hooks import checked, prepared

_TOGETHER = 4 << 20
"""Bytes copied within one landing, which a caller who gives up waits for: a fraction of a millisecond."""

Todo = Sequence[tuple[int, Entry]]
"""Blobs of a batch, each with its place in the batch."""


@dataclass(slots=True)
class Load:
    """Blobs that are copied within one landing. A blob with a hook of its own is alone in its load."""

    places: list[int] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    size: int = 0
    before: Callable[[], bool] | None = None
    """Run first: False is `Status.ERROR`."""
    after: Callable[[], bool] | None = None
    """Run last: False is `Status.CORRUPT`."""

    def gather(self, place: int, entry: Entry, to: int, buffers: Sequence[Buffer]) -> None:
        """Add a blob that goes to the address `to`."""
        for buffer in buffers:
            size = len(buffer)
            if size:
                self.moves.append((fitting(size), to, address_of(buffer), size))
                to += size
        self.places.append(place)
        self.size += entry.size

    def scatter(self, place: int, entry: Entry, origin: int, parts: Sequence[Part]) -> None:
        """Add a blob that lies at the address `origin`, unless it ends before a part of it does."""
        if parts and parts[-1][0] + len(parts[-1][1]) > entry.size:
            return
        for offset, buffer in parts:
            size = len(buffer)
            if size:
                self.moves.append((fitting(size), writable_address_of(buffer), origin + offset, size))
        self.places.append(place)
        self.size += entry.size

    def carry(self, deadline: Deadline | None) -> Status:
        """Copy it, unless it is too late: what became of every blob of it."""
        if deadline is None:
            return self._copy()
        with deadline.landing() as admitted:
            return self._copy() if admitted and not deadline.expired else Status.TIMEOUT

    def _copy(self) -> Status:
        if self.before is not None and not self.before():
            return Status.ERROR
        move_all(self.moves)
        return Status.OK if self.after is None or self.after() else Status.CORRUPT


def writes(arena: int, todo: Todo, items: Sequence[PutItem]) -> list[Load]:
    """What is to be copied into the blocks of an arena at the address `arena`."""
    loads, load = [], Load()
    for place, entry in todo:
        item = items[place]
        if item.prepare is not None:
            own = Load(before=partial(prepared, item))
            own.gather(place, entry, arena + entry.offset, item.buffers)
            loads.append(own)
            continue
        load.gather(place, entry, arena + entry.offset, item.buffers)
        if load.size >= _TOGETHER:
            loads.append(load)
            load = Load()
    return [load for load in (*loads, load) if load.places]


def reads(arena: int, todo: Todo, items: Sequence[GetItem]) -> list[Load]:
    """What is to be copied out of an arena; a blob that is shorter than what is asked of it is in no load."""
    loads, load = [], Load()
    for place, entry in todo:
        item = items[place]
        if item.check is not None:
            own = Load(after=partial(checked, item))
            own.scatter(place, entry, arena + entry.offset, item.parts)
            loads.append(own)
            continue
        load.scatter(place, entry, arena + entry.offset, item.parts)
        if load.size >= _TOGETHER:
            loads.append(load)
            load = Load()
    return [load for load in (*loads, load) if load.places]
