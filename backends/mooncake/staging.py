"""Registered memory of our own that every read lands in first, and that is never freed under the library.

A native call cannot be taken back, and may write after it has failed (`codes.settled`). So the engine's
memory is never given to it to write into; what has landed here is copied, while the caller still waits.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

from sgkv.backends.base import Bound, Buffer
from sgkv.backends.cpu.copying import address_of
from sgkv.backends.deadline import Deadline
from sgkv.backends.mooncake.client import Client, Connection
from sgkv.backends.mooncake.immortal import keep_forever
from sgkv.backends.mooncake.memory import forget, mapped
from sgkv.backends.mooncake.options import MooncakeOptions

SLOT_BYTES = 8 << 20
"""One native call moves at most so much."""
_MOST_LOST = 16
"""Slots given up, in multiples of those in use: addresses only, their memory is given back."""


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One run of staging memory."""

    address: int
    view: Buffer


class Staging:
    """A bounded number of slots, made when they are first needed. Any thread."""

    def __init__(self, client: Client, options: MooncakeOptions) -> None:
        self._client = client
        self._shared = bool(options.standalone)
        self._limit = options.staging_bytes // SLOT_BYTES
        self._changed = threading.Condition()
        self._free: list[Slot] = []
        self._out = 0
        self._lost = 0

    def take(self, connection: Connection, deadline: Deadline) -> Slot | None:
        """A slot of one's own; None when none became free in time, or there is no memory for one."""
        slots = self.take_some(connection, 1, deadline)
        return slots[0] if slots else None

    def take_some(self, connection: Connection, count: int, deadline: Deadline) -> list[Slot]:
        """`count` slots at once, or none: nobody holds some and waits for more."""
        with self._changed:
            fits = count <= self._limit and self._lost < _MOST_LOST * self._limit
            if not fits or not self._changed.wait_for(
                lambda: self._out + count <= self._limit, deadline.remaining()
            ):
                return []
            self._out += count
            found: list[Slot | None] = [self._free.pop() if self._free else None for _ in range(count)]
        slots = [slot or self._made(connection) for slot in found]
        whole = [slot for slot in slots if slot is not None]
        if len(whole) == count:
            return whole
        for slot in slots:
            self.give(slot, settled=True)
        return []

    def give(self, slot: Slot | None, *, settled: bool) -> None:
        """Return a slot. Where a transfer is not `settled` its addresses are never used again."""
        if slot is not None and not settled:
            forget(slot.view)
        with self._changed:
            self._out -= 1
            if slot is not None and settled:
                self._free.append(slot)
            self._lost += not settled
            self._changed.notify_all()

    def bounds(self) -> dict[str, Bound]:
        with self._changed:
            return {
                "staging_slots": Bound(self._out, self._limit),
                "staging_lost": Bound(self._lost, _MOST_LOST * self._limit),
            }

    def _made(self, connection: Connection) -> Slot | None:
        return _in_pool(connection) if self._shared else _mapped(self._client.register)


def _mapped(register: Callable[[Buffer], bool]) -> Slot | None:
    view = mapped(SLOT_BYTES)
    if not register(view):
        return None
    keep_forever(view)
    return Slot(address_of(view), view)


def _in_pool(connection: Connection) -> Slot | None:
    """A standalone client reaches only memory that it shares with us."""
    address = connection.store.alloc_from_mem_pool(SLOT_BYTES)
    if address <= 0 or connection.store.register_buffer(address, SLOT_BYTES):
        return None
    return Slot(address, memoryview((ctypes.c_ubyte * SLOT_BYTES).from_address(address)).cast("B"))
