"""The sending side: writes chunks into the receiver's places, says so, and hears what became of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import suppress
from itertools import accumulate

from sgkv.backends.base import PutItem
from sgkv.backends.cpu.copying import copy
from sgkv.backends.deadline import Deadline
from sgkv.backends.hooks import prepared
from sgkv.backends.mooncake.runs import Run, line_up
from sgkv.backends.workers import WorkerPool
from sgkv.pd.engine import Engine, Region
from sgkv.pd.places import SCRATCH_BYTES
from sgkv.pd.window import LATE, Flight, Outcome, Window
from sgkv.pd.wire import VERSION, Bye, Hello, Landed, ProtocolError, Refused, Verdict, Welcome, Wire

_STRAIGHT = 128 << 10
"""Bytes from which registered memory is worth a message of its own; less is copied next to its neighbours."""
_WRITERS = 2
"""One writes while the other looks whether it is done, or says so; more only contend on TCP."""
_FIRST_WRITES = 4
_CLOSE_SECONDS = 5.0
_LAST_VERDICTS_SECONDS = 1.0


class Sender:
    """A connection to one receiver; any number of threads may send.

    Chunks are written a few at a time, while the receiver verifies those before. A sender that lost its
    receiver, or that got no answer about a chunk in time, is broken and says so at once: make another one.
    """

    def __init__(
        self, engine: Engine, address: tuple[str, int], *, token: str = "", connect_seconds: float = 5.0
    ) -> None:
        """Raises OSError where no receiver of our version and token is, or RuntimeError of the engine."""
        deadline = Deadline(connect_seconds)
        self._engine = engine
        self._wire = Wire(socket.create_connection(address, timeout=connect_seconds))
        self._closed = False
        self._lost = False
        """Whether the connection or a write failed: a write may then be under way that nobody waits for."""
        try:
            self._there = self._introduce(token, deadline)
            count = len(self._there.places)
            self._staging = Region(engine, max(SCRATCH_BYTES, self._there.size * count))
        except (OSError, RuntimeError):
            self._wire.close()
            raise
        self._window = Window(count)
        self._saying = threading.Lock()
        self._writer = WorkerPool(_WRITERS, "sgkv-pd-write", backlog=count)
        self._hearing = threading.Thread(target=self._hear, name="sgkv-pd-verdicts", daemon=True)
        try:
            self._first_write(deadline)
        except OSError:
            self._wire.close()
            self._writer.close(0.0)
            self._staging.release(quiet=False)
            raise
        self._wire.be_endless()
        self._hearing.start()

    @property
    def slot_bytes(self) -> int:
        """The most bytes that a chunk may have."""
        return self._there.size

    def send(self, key: str, blob: memoryview, deadline: Deadline) -> Outcome:
        """`send_all` for one chunk."""
        return self.send_all([PutItem(key, [blob])], deadline)[0]

    def send_all(self, items: Sequence[PutItem], deadline: Deadline) -> list[Outcome]:
        """Send chunks and wait until the receiver has judged each, or the deadline is over.

        Buffers in memory that the engine knows (`Engine.register_memory`) are sent straight from there, also
        when the deadline ends in the middle; others are copied first, in this thread. A cancelled `deadline`
        keeps a chunk from being taken as long as its end was not announced.
        """
        flights = [self._launch(item, deadline) for item in items]
        wait(flights, deadline.remaining())
        if any(flight.running() for flight in flights):
            self._window.break_off("an answer did not come in time")
        return [flight.result() if flight.done() else LATE for flight in flights]

    def close(self) -> None:
        """Waits for a write under way, for some seconds, and says goodbye if it ended well. Idempotent."""
        with self._saying:
            if self._closed:
                return
            self._closed = True
        self._window.break_off("closed")
        ended = self._writer.close(0.0 if self._lost else _CLOSE_SECONDS)
        if quiet := ended and not self._lost:
            with suppress(OSError), self._saying:
                self._wire.say(Bye(), None)
            self._hearing.join(_LAST_VERDICTS_SECONDS)  # the receiver hangs up when it has heard it
        self._lose("closed")
        self._hearing.join()
        self._wire.close()
        self._staging.release(quiet=quiet)

    def _introduce(self, token: str, deadline: Deadline) -> Welcome:
        self._wire.say(Hello(VERSION, token), deadline)
        welcome = self._wire.hear(deadline)
        if isinstance(welcome, Refused):
            raise ProtocolError(f"the receiver refuses: {welcome.reason}")
        if not isinstance(welcome, Welcome):
            raise ProtocolError(f"no receiver: {welcome}")
        return welcome

    def _first_write(self, deadline: Deadline) -> None:
        """Reach the receiver's engine; connections to an earlier process at its address fail here."""
        arrived: list[bool] = []

        def write() -> None:
            run = [Run(self._staging.pointer, SCRATCH_BYTES, 0)]
            arrived.append(
                any(
                    self._engine.write(self._there.session, run, self._there.scratch)
                    for _ in range(_FIRST_WRITES)
                )
            )

        first = self._writer.submit(write)
        if first is None or not wait([first], deadline.remaining()).done or arrived != [True]:
            raise ConnectionError(f"the engine at {self._there.session} cannot be written to")

    def _launch(self, item: PutItem, deadline: Deadline) -> Flight:
        flight = Flight()
        if not 0 < item.size <= self.slot_bytes:
            flight.set_result(Outcome(False, f"{item.size} bytes do not fit {self.slot_bytes}"))
            return flight
        place = None if deadline.over else self._window.take(deadline)
        if place is None:
            flight.set_result(self._why_not())
            return flight
        if not prepared(item):
            self._end(flight, place, Outcome(False, "it could not be prepared"))
            return flight
        runs = self._line_up(item, place)
        if self._writer.submit(lambda: self._fly(flight, place, item, runs, deadline)) is None:
            self._end(flight, place, self._why_not())
        return flight

    def _line_up(self, item: PutItem, place: int) -> list[Run]:
        """What to write from where; what the engine does not know is copied."""
        runs: list[Run] = []
        for end, buffer in zip(accumulate(map(len, item.buffers)), item.buffers, strict=True):
            size, offset = len(buffer), end - len(buffer)
            address = self._engine.locate(buffer) if size >= _STRAIGHT else None
            if address is None:
                start = place * self.slot_bytes + offset
                copy(self._staging.view[start : start + size], buffer)
                address = self._staging.pointer + start
            line_up(runs, Run(address, size, offset))
        return runs

    def _fly(
        self, flight: Flight, place: int, item: PutItem, runs: Sequence[Run], deadline: Deadline
    ) -> None:
        """In a writing thread."""
        if deadline.over or self._window.broken or not flight.set_running_or_notify_cancel():
            self._end(flight, place, self._why_not())
            return
        if not self._engine.write(self._there.session, runs, self._there.places[place]):
            # Bytes that are under way may still arrive, and late: the place is not ours to use again.
            self._lose("the write failed")
            flight.set_result(self._why_not())
        elif deadline.over:
            self._end(flight, place, LATE)
        else:
            self._window.expect(place, flight)
            self._announce(Landed(place, item.key, item.size))

    def _announce(self, landed: Landed) -> None:
        """Never waits: there are no more of these under way than places, which the socket's buffer holds."""
        try:
            with self._saying:
                self._wire.say(landed, None)
        except OSError as error:
            self._lose(str(error))

    def _why_not(self) -> Outcome:
        """What becomes of a chunk that is not sent."""
        return Outcome(False, self._window.broken) if self._window.broken else LATE

    def _end(self, flight: Flight, place: int, outcome: Outcome) -> None:
        """Of a chunk that was not announced."""
        self._window.give_back(place)
        flight.set_result(outcome)

    def _hear(self) -> None:
        try:
            while True:
                verdict = self._wire.hear(None)
                if not isinstance(verdict, Verdict) or not self._window.settle(
                    verdict.place, Outcome(verdict.taken, verdict.reason)
                ):
                    raise ProtocolError("a verdict was due")
        except OSError as error:
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        self._lost = True
        self._window.break_off(reason)
        self._wire.hang_up()
