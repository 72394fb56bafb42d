"""What one connection holds of the arena, so that all of it comes back when the connection ends."""

from __future__ import annotations

from collections.abc import Sequence

from sgkv.backends.cpu import Lease, Reservation
from sgkv.store.lending import Lent, Rooms


class Holdings:
    """At most one batch of leases or of room at a time. Of the connection's thread alone."""

    def __init__(self) -> None:
        self._leases: Sequence[Lease] = ()
        self._rooms: Rooms | None = None

    @property
    def blocks(self) -> int:
        """Blocks of the arena that cannot be evicted because of this connection."""
        rooms = self._rooms.places if self._rooms else ()
        return len(self._leases) + sum(isinstance(room, Reservation) for room in rooms)

    def lend(self, lent: Lent) -> None:
        self.give_back()
        self._leases = [lease for lease in lent.leases if lease is not None]

    def reserve(self, rooms: Rooms) -> None:
        self.give_back()
        self._rooms = rooms

    def take_rooms(self) -> Rooms | None:
        """What was reserved last, which is the caller's to end now."""
        rooms, self._rooms = self._rooms, None
        return rooms

    def give_back(self) -> None:
        leases, self._leases = self._leases, ()
        for lease in leases:
            lease.release()
        rooms = self.take_rooms()
        if rooms is not None:
            rooms.abandon()
