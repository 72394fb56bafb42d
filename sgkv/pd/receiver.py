"""The receiving side: lends places to senders, and takes what arrives whole."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from sgkv.backends.deadline import Deadline
from sgkv.chunk.whole import flaw
from sgkv.pd.engine import Engine
from sgkv.pd.slots import Slots
from sgkv.pd.wire import VERSION, Abandoned, Grant, Hello, Landed, Offer, ProtocolError, Verdict, Welcome
from sgkv.pd.wire import hear as _hear
from sgkv.pd.wire import say as _say

_log = logging.getLogger(__name__)
Take = Callable[[str, memoryview], bool]


class Receiver:
    """Listens on `host` (loopback unless told otherwise) with one thread per sender, `slots` at most."""

    def __init__(
        self,
        engine: Engine,
        take: Take,
        *,
        slot_bytes: int,
        slots: int = 4,
        host: str = "127.0.0.1",
        transfer_seconds: float = 30.0,
        idle_seconds: float = 300.0,
    ) -> None:
        """`take(key, blob)` gets verified chunks, in a thread of ours, and says whether it kept a copy.

        It must be done with `blob` when it returns, and may not raise. A sender may be silent for
        `transfer_seconds` in the middle of a chunk and for `idle_seconds` between two.
        Raises OSError, or RuntimeError of the engine.
        """
        self._engine, self._take = engine, take
        self._transfer_seconds, self._idle_seconds = transfer_seconds, idle_seconds
        self._listener = socket.create_server((host, 0), backlog=slots)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._slots = Slots(engine, slot_bytes, slots)
        self._limit = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._closed = False
        self._senders: dict[socket.socket, threading.Thread] = {}
        self._accepting = threading.Thread(target=self._accept, name="sgkv-pd-accept", daemon=True)
        self._accepting.start()

    @property
    def lost_slots(self) -> int:
        """Places that are not used again, because their sender went away in the middle of a chunk."""
        return self._slots.lost

    def close(self, timeout: float = 5.0) -> None:
        """End all connections; chunks under way are not taken. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            senders = dict(self._senders)
        for connection in (self._listener, *senders):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = Deadline(timeout)
        for thread in (self._accepting, *senders.values()):
            thread.join(deadline.remaining())
        self._listener.close()
        self._slots.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was shut down
            while not self._closed:
                connection, _ = self._listener.accept()
                if not self._admit(connection):
                    connection.close()

    def _admit(self, connection: socket.socket) -> bool:
        if not self._limit.acquire(blocking=False):
            return False
        thread = threading.Thread(target=self._serve, args=(connection,), name="sgkv-pd-receive", daemon=True)
        with self._lock:
            if self._closed:
                return False
            self._senders[connection] = thread
            thread.start()
        return True

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._greet(connection)
                while not self._closed:
                    self._receive(connection)
        except OSError as error:
            _log.debug("a sender is gone: %s", error)
        finally:
            with self._lock:
                del self._senders[connection]
            self._limit.release()

    def _greet(self, connection: socket.socket) -> None:
        deadline = Deadline(self._transfer_seconds)
        hello = _hear(connection, deadline)
        if not isinstance(hello, Hello):
            raise ProtocolError("no hello")
        slots = self._slots
        _say(connection, Welcome(VERSION, self._engine.session, slots.size, slots.scratch), deadline)
        if hello.version != VERSION:
            raise ProtocolError(f"version {hello.version} is not {VERSION}")

    def _receive(self, connection: socket.socket) -> None:
        """One chunk."""
        offer = _hear(connection, Deadline(self._idle_seconds))
        if not isinstance(offer, Offer):
            raise ProtocolError("an offer was due")
        deadline = Deadline(self._transfer_seconds)
        slot = self._slots.take() if 0 < offer.size <= self._slots.size else None
        if slot is None:
            _say(connection, Verdict(False, f"no place for {offer.size} bytes"), deadline)
            return
        try:
            verdict = self._land(connection, offer, slot, deadline)
        except OSError:
            self._slots.lose()
            raise
        self._slots.give_back(slot)
        _say(connection, verdict, deadline)

    def _land(self, connection: socket.socket, offer: Offer, slot: int, deadline: Deadline) -> Verdict:
        """Raises OSError where the sender did not say that it will leave the place alone."""
        _say(connection, Grant(self._slots.pointer(slot)), deadline)
        end = _hear(connection, deadline)
        if isinstance(end, Abandoned):
            return Verdict(False, "abandoned")
        if not isinstance(end, Landed):
            raise ProtocolError("the end of a chunk was due")
        blob = self._slots.view(slot, offer.size)
        wrong = flaw(blob)
        if wrong or self._closed:
            return Verdict(False, wrong or "closed")
        taken = self._take(offer.key, blob)
        return Verdict(taken, "" if taken else "not kept")
