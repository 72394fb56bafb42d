"""Pages in the cpu tier for another process: room to write into, and pages to read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sgkv.backends.base import Status
from sgkv.backends.cpu import CpuBackend, Lease, Reservation
from sgkv.backends.deadline import Deadline
from sgkv.keys import page_keys
from sgkv.reasons import MissReason
from sgkv.store.lookup import Search, search_all
from sgkv.store.reading import Reading, read_all
from sgkv.store.span import Span
from sgkv.store.tier import Tier
from sgkv.store.write_behind import WriteBehind
from sgkv.store.writing import Writing


@dataclass(frozen=True, slots=True)
class Rooms:
    """Room in the arena for the pages of a span. End it with `publish` or `abandon`, once."""

    writing: Writing
    arena: Tier
    behind: WriteBehind | None
    span: Span
    expires_at: int
    places: Sequence[Reservation | Status]
    """Where each page belongs, or why it need not or cannot be written."""

    def publish(self) -> list[bool]:
        """The pages are written: make them readable. True for each that is stored, or was already."""
        statuses = [room.commit() if isinstance(room, Reservation) else room for room in self.places]
        return self.writing.settle(self.arena, self.behind, self.span, statuses, self.expires_at)

    def abandon(self) -> None:
        for room in self.places:
            if isinstance(room, Reservation):
                room.abort()


@dataclass(frozen=True, slots=True)
class Lent:
    """What became of each page of a span; every lease is the caller's to release."""

    leases: Sequence[Lease | None]
    reasons: Sequence[MissReason | None]
    served_by: dict[str, int]
    """Pages by the tier they came from."""


def lend(
    reading: Reading,
    search: Search,
    arena_tier: Tier,
    arena: CpuBackend,
    below: Sequence[Tier],
    deadline: Deadline,
) -> Lent:
    """Lease the pages of `reading` in the arena; those that only slower tiers have are loaded into it.

    `search` is for the same pages and has not begun. A page for which the arena has no room is a miss.
    """
    keys = page_keys(reading.arena_namespace, reading.span.hashes)
    leases = _lease(arena, keys)
    search.available = [lease is not None for lease in leases]
    search_all([search], below, deadline)  # room is only made, by evicting others, for what can be loaded
    rooms = _reserve(reading, arena, keys, leases, search.available)
    if rooms:
        reading.pages = [[rooms[page].view] if page in rooms else [] for page in range(len(keys))]
        reading.reasons = [MissReason.ABSENT if page in rooms else None for page in range(len(keys))]
        _load(reading, below, rooms, deadline)
        for page, lease in zip(rooms, _lease(arena, [keys[page] for page in rooms]), strict=True):
            leases[page] = lease
    at_once = sum(lease is not None for page, lease in enumerate(leases) if page not in rooms)
    reasons = [
        None if lease else _reason(reading, search, page, loaded=page in rooms)
        for page, lease in enumerate(leases)
    ]
    return Lent(leases, reasons, {arena_tier.name: at_once, **reading.served_by})


def _reason(reading: Reading, search: Search, page: int, *, loaded: bool) -> MissReason:
    if not search.available[page]:
        return search.reason
    return (reading.reasons[page] if loaded else None) or MissReason.ABSENT


def _lease(arena: CpuBackend, keys: Sequence[str]) -> list[Lease | None]:
    """Last page first: what is touched last is evicted last, and parents must outlive children."""
    return arena.lease(keys[::-1])[::-1]


def _reserve(
    reading: Reading,
    arena: CpuBackend,
    keys: Sequence[str],
    leases: list[Lease | None],
    available: Sequence[bool],
) -> dict[int, Reservation]:
    """Room for each available page that is not leased; one that came in meanwhile is."""
    rooms: dict[int, Reservation] = {}
    size = reading.identity.layout.page_bytes
    for page, key in enumerate(keys):
        if available[page] and leases[page] is None:
            room = arena.reserve(key, size)
            if isinstance(room, Reservation):
                rooms[page] = room
            elif room is Status.EXISTS:
                (leases[page],) = arena.lease([key])
    return rooms


def _load(reading: Reading, below: Sequence[Tier], rooms: dict[int, Reservation], deadline: Deadline) -> None:
    """Fill and publish what the tiers have; give the rest of the room back."""
    try:
        read_all([reading], below, deadline)
    finally:
        expiries = {page_hash: read.expires_at for _, read in reading.promotable for page_hash in read.hashes}
        for page, room in reversed(rooms.items()):
            if reading.reasons[page] is None:
                room.commit(expiries.get(reading.span.hashes[page], 0))
            else:
                room.abort()
