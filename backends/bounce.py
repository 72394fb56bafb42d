"""Stand-ins for a caller's buffers, for backends that cannot be abandoned (rule 8)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sgkv.backends.base import Buffer, GetItem, Part, PutItem, Status
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import checked


class Abandoned(Exception):  # noqa: N818 - not an error of anyone's
    """Raised in `prepare` when the caller has given up."""


def stand_in_put(item: PutItem, deadline: Deadline) -> PutItem:
    """`item` over buffers of its own, filled by its `prepare` while the caller still waits."""
    own = [_like(buffer) for buffer in item.buffers]
    return PutItem(item.key, own, partial(_take, item, own, deadline), item.expires_at, item.after)


def stand_in_get(item: GetItem) -> GetItem:
    """`item` over buffers of its own; what arrives in them is unchecked."""
    return GetItem(item.key, [Part(part.offset, _like(part.buffer)) for part in item.parts])


def land(item: GetItem, own: GetItem, status: Status, deadline: Deadline) -> Status:
    """Copy what arrived in a stand-in into the caller's buffers, and check it there."""
    if status is not Status.OK:
        return status
    with landing(deadline) as admitted:
        if not admitted:
            return Status.TIMEOUT
        for part, arrived in zip(item.parts, own.parts, strict=True):
            copy(part.buffer, arrived.buffer)
        return Status.OK if checked(item) else Status.CORRUPT


def land_all(
    items: Sequence[GetItem], owns: Sequence[GetItem], statuses: Sequence[Status], deadline: Deadline
) -> list[Status]:
    """`land` for a batch."""
    rows = zip(items, owns, statuses, strict=True)
    return [land(item, own, status, deadline) for item, own, status in rows]


def _take(item: PutItem, own: Sequence[Buffer], deadline: Deadline) -> None:
    with landing(deadline) as admitted:
        if not admitted:
            raise Abandoned(item.key)
        if item.prepare is not None:
            item.prepare()
        for target, source in zip(own, item.buffers, strict=True):
            copy(target, source)


def _like(buffer: Buffer) -> Buffer:
    return memoryview(bytearray(len(buffer)))
