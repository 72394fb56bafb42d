"""The receiving side: listens for senders, and serves each in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress

from sgkv.backends.deadline import Deadline
from sgkv.pd.engine import Engine
from sgkv.pd.places import Lender
from sgkv.pd.session import Take, Terms, serve
from sgkv.pd.wire import Wire

_log = logging.getLogger(__name__)
_PAUSE = 1.0
"""Seconds without new senders after one could not be accepted."""


class Receiver:
    """Listens on `host` (loopback unless told otherwise) for `senders` at most at a time."""

    def __init__(
        self,
        engine: Engine,
        take: Take,
        *,
        slot_bytes: int,
        slots: int = 4,
        senders: int = 4,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        idle_seconds: float = 300.0,
    ) -> None:
        """`take(key, blob)` gets verified chunks, in a thread of ours, and says whether it kept a copy.

        It must be done with `blob` when it returns, and may not raise. Each sender has `slots` places of
        `slot_bytes` to write into, so chunks may be on their way while others are verified. A sender must
        know `token`, and is sent away when it says nothing for `idle_seconds`. Port 0 is a free one.
        Raises OSError.
        """
        self._listener = socket.create_server((host, port), backlog=senders)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._lender = Lender(engine, slot_bytes, slots)
        self._closing = threading.Event()
        self._terms = Terms(engine.session, self._lender, take, token, idle_seconds, self._closing)
        self._limit = threading.BoundedSemaphore(senders)
        self._lock = threading.Lock()
        self._senders: dict[Wire, threading.Thread] = {}
        self._accepting = threading.Thread(target=self._accept, name="sgkv-pd-accept", daemon=True)
        self._accepting.start()

    @property
    def retired(self) -> int:
        """Senders that went away without a word; what they could still write to is not used again."""
        return self._lender.retired

    def close(self, timeout: float = 5.0) -> None:
        """End all connections; chunks under way are not taken. Idempotent."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            senders = dict(self._senders)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for wire in senders:
            wire.hang_up()
        deadline = Deadline(timeout)
        for thread in (self._accepting, *senders.values()):
            thread.join(deadline.remaining())
        self._listener.close()
        self._lender.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # the listener was shut down, or the process has no descriptors left
                if not self._closing.wait(_PAUSE):
                    _log.warning("no sender can be accepted: %s", error)
                continue
            if not self._admit(Wire(connection)):
                connection.close()

    def _admit(self, wire: Wire) -> bool:
        if not self._limit.acquire(blocking=False):
            return False
        thread = threading.Thread(target=self._serve, args=(wire,), name="sgkv-pd-receive", daemon=True)
        with self._lock:
            if self._closing.is_set():
                return False
            try:
                thread.start()
            except RuntimeError as error:  # the system has none to give
                _log.warning("a sender is not served: %s", error)
                self._limit.release()
                return False
            self._senders[wire] = thread
        return True

    def _serve(self, wire: Wire) -> None:
        try:
            serve(wire, self._terms)
        except (OSError, RuntimeError) as error:
            _log.debug("a sender is gone: %s", error)
        finally:
            with self._lock:
                del self._senders[wire]
            self._limit.release()
            wire.close()  # only now: a sender that waits for it may be the next to connect
