"""Writing through a standalone client, which knows no sessions and reaches only memory it shares with us."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.base import PutItem, Status
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import prepared
from sgkv.backends.mooncake.client import Connection
from sgkv.backends.mooncake.codes import settled, start_status
from sgkv.backends.mooncake.keys import native_key
from sgkv.backends.mooncake.staging import SLOT_BYTES, Slot, Staging


def write_whole(connection: Connection, staging: Staging, item: PutItem, deadline: Deadline) -> Status:
    """Copy a blob into staging, all of it, and put it by one call.

    What is published late is what the caller had when it still waited, so it is right all the same. A
    blob larger than staging is `Status.ERROR`.
    """
    key = native_key(item.key)
    (there,) = connection.store.batch_is_exist([key])
    if there:
        return Status.EXISTS if there == 1 else Status.ERROR
    slots = staging.take_some(connection, -(-item.size // SLOT_BYTES), deadline)
    if not slots:
        return Status.TIMEOUT if deadline.over else Status.ERROR
    code = -1
    try:
        status = _fill(slots, item, deadline)
        if status is not Status.OK:
            code = 0
            return status
        sizes = [min(SLOT_BYTES, item.size - at * SLOT_BYTES) for at in range(len(slots))]
        (code,) = connection.store.batch_put_from_multi_buffers(
            [key], [[slot.address for slot in slots]], [sizes], connection.placement
        )
        return start_status(code)
    finally:
        for slot in slots:
            staging.give(slot, settled=settled(code))


def _fill(slots: Sequence[Slot], item: PutItem, deadline: Deadline) -> Status:
    with landing(deadline) as admitted:
        if not admitted:
            return Status.TIMEOUT
        if not prepared(item):
            return Status.ERROR
        at = 0
        for buffer in item.buffers:
            start = 0
            while start < len(buffer):
                slot, offset = slots[at // SLOT_BYTES], at % SLOT_BYTES
                size = min(len(buffer) - start, SLOT_BYTES - offset)
                copy(slot.view[offset : offset + size], buffer[start : start + size])
                start, at = start + size, at + size
    return Status.OK
