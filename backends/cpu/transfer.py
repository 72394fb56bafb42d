"""Bytes between the arena and the caller's buffers, one blob at a time."""

from __future__ import annotations

from sgkv.backends.base import Buffer, GetItem, PutItem, Status
from sgkv.backends.cpu.copying import copy
from sgkv.backends.cpu.index import Entry
from sgkv.backends.deadline import Deadline
from sgkv.backends.hooks import checked, prepared


def write_blob(arena: Buffer, entry: Entry, item: PutItem, deadline: Deadline | None) -> Status:
    """Copy the item's buffers into its block."""
    if deadline is None:
        return _gather(arena, entry, item)
    with deadline.landing() as admitted:
        status = _gather(arena, entry, item) if admitted and not deadline.expired else Status.TIMEOUT
    # Whoever lent the buffers may have taken them back while they were read.
    return Status.TIMEOUT if deadline.expired else status


def read_blob(arena: Buffer, entry: Entry, item: GetItem, deadline: Deadline | None) -> Status:
    """Fill the item's parts from its block, and check them."""
    if deadline is None:
        return _scatter(arena, entry, item)
    with deadline.landing() as admitted:
        return _scatter(arena, entry, item) if admitted and not deadline.expired else Status.TIMEOUT


def _gather(arena: Buffer, entry: Entry, item: PutItem) -> Status:
    if not prepared(item):
        return Status.ERROR
    at = entry.offset
    for buffer in item.buffers:
        end = at + len(buffer)
        copy(arena[at:end], buffer)
        at = end
    return Status.OK


def _scatter(arena: Buffer, entry: Entry, item: GetItem) -> Status:
    base, size = entry.offset, entry.size
    for offset, buffer in item.parts:
        end = offset + len(buffer)
        if end > size:
            return Status.SHORT
        copy(buffer, arena[base + offset : base + end])
    return Status.OK if checked(item) else Status.CORRUPT
