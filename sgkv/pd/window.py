"""The sender's view of the receiver's places: which are its own, and which chunks wait for a verdict."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from sgkv.backends.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a chunk."""

    taken: bool
    reason: str = ""
    """Why it was not taken, in words."""


LATE = Outcome(False, "the deadline is over")
Flight = Future[Outcome]
"""One chunk on its way."""


class Window:
    """Places `0 .. count - 1`. Any thread.

    The place that came back last is lent first: it is still in the processor's cache, at both ends.
    """

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._free = list(range(count))
        self._flights: dict[int, Flight] = {}
        self._broken = ""

    @property
    def broken(self) -> str:
        """Why nothing goes through any more; empty while it does."""
        return self._broken

    def take(self, deadline: Deadline) -> int | None:
        """A place to write to; None where none came back in time, or when broken."""
        with self._changed:
            free = self._changed.wait_for(lambda: self._free or self._broken, deadline.remaining())
            return self._free.pop() if free and not self._broken else None

    def give_back(self, place: int) -> None:
        """Of a chunk that was not announced."""
        with self._changed:
            self._free.append(place)
            self._changed.notify()

    def expect(self, place: int, flight: Flight) -> None:
        """A verdict on what is in this place."""
        with self._changed:
            if not self._broken:
                self._flights[place] = flight
                return
        flight.set_result(Outcome(False, self._broken))

    def settle(self, place: int, outcome: Outcome) -> bool:
        """False where no verdict on this place was due; once broken, nobody waits for any."""
        with self._changed:
            flight = self._flights.pop(place, None)
        if flight is None:
            return bool(self._broken)
        self.give_back(place)
        flight.set_result(outcome)
        return True

    def break_off(self, reason: str) -> None:
        """End every wait, now and from now on; the first reason stays."""
        with self._changed:
            self._broken = self._broken or reason
            flights, self._flights = self._flights, {}
            self._changed.notify_all()
        for flight in flights.values():
            flight.set_result(Outcome(False, self._broken))
