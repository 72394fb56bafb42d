"""What one connection holds of the arena, so that all of it comes back when the connection ends."""

from __future__ import annotations

from collections import deque

from sgkv.backends.cpu import Lease, Reservation
from sgkv.node.wire import WireError
from sgkv.store.lending import Lent, Rooms

_MOST = 4
"""Batches: engines ask for the next ones while they copy one."""


class Holdings:
    """Batches of leases and of room, the oldest first. Of the connection's thread alone."""

    def __init__(self) -> None:
        self._batches: deque[Lent | Rooms] = deque()

    @property
    def blocks(self) -> int:
        """Blocks of the arena that cannot be evicted because of this connection."""
        return sum(map(_blocks, list(self._batches)))

    @property
    def has_rooms(self) -> bool:
        """Whether the peer may be writing into the arena."""
        return any(isinstance(batch, Rooms) for batch in self._batches)

    def require_place(self) -> None:
        """Raises WireError where the peer holds as much as it may."""
        if len(self._batches) >= _MOST:
            raise WireError(f"more than {_MOST} batches are held: return or publish one first")

    def add(self, batch: Lent | Rooms) -> None:
        self._batches.append(batch)

    def take_rooms(self) -> Rooms:
        """The oldest batch, which is the caller's to end now. Raises WireError where it is none of room."""
        if not self._batches or not isinstance(self._batches[0], Rooms):
            raise WireError("nothing is reserved that could be published")
        rooms = self._batches.popleft()
        assert isinstance(rooms, Rooms)  # as it was a line ago
        return rooms

    def give_back_oldest(self) -> None:
        if self._batches:
            _give_back(self._batches.popleft())

    def give_back(self) -> None:
        while self._batches:
            self.give_back_oldest()


def _blocks(batch: Lent | Rooms) -> int:
    if isinstance(batch, Rooms):
        return sum(isinstance(room, Reservation) for room in batch.places)
    return sum(isinstance(lease, Lease) for lease in batch.leases)


def _give_back(batch: Lent | Rooms) -> None:
    if isinstance(batch, Rooms):
        batch.abandon()
        return
    for lease in batch.leases:
        if lease is not None:
            lease.release()
