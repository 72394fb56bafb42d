"""The sending side: asks for a place, writes a chunk there, says so, and hears what became of it."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import wait
from dataclasses import dataclass

from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.pd.engine import Engine, Region
from sgkv.pd.slots import SCRATCH_BYTES
from sgkv.pd.wire import VERSION, Abandoned, Grant, Hello, Landed, Offer, ProtocolError, Verdict, Welcome
from sgkv.pd.wire import hear as _hear
from sgkv.pd.wire import say as _say

_LAST_WORD_SECONDS = 0.1
"""For the word that a place is left alone, even when the deadline is over: without it the place is lost."""

_FIRST_WRITES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a chunk."""

    taken: bool
    reason: str = ""
    """Why it was not taken, in words."""


class Sender:
    """A connection to one receiver; one chunk at a time, callers wait for each other.

    A sender that lost its receiver, or whose write did not end in time, is broken and answers so at once:
    make another one.
    """

    def __init__(self, engine: Engine, address: tuple[str, int], *, connect_seconds: float = 5.0) -> None:
        """Raises OSError when there is no receiver of our version, or RuntimeError of the engine."""
        deadline = Deadline(connect_seconds)
        self._engine = engine
        self._connection = socket.create_connection(address, timeout=connect_seconds)
        self._worker = WorkerPool(1, "sgkv-pd-write", backlog=1)
        self._turn = threading.Lock()
        self._broken = ""
        self._writing = False
        self._closed = False
        try:
            welcome = self._introduce(deadline)
            self._session, self.slot_bytes = welcome.session, welcome.slot_bytes
            self._staging = Region(engine, max(SCRATCH_BYTES, self.slot_bytes))
        except (OSError, RuntimeError):
            self._connection.close()
            raise
        try:
            self._first_write(welcome.scratch, deadline)
        except OSError:
            self.close()
            raise

    def send(self, key: str, blob: memoryview, deadline: Deadline) -> Outcome:
        """Send a chunk whole. `blob` is copied first, so it is the caller's again whatever happens.

        A cancelled `deadline` keeps the chunk from being taken as long as its end was not announced.
        """
        if not 0 < len(blob) <= self.slot_bytes:
            return Outcome(False, f"{len(blob)} bytes do not fit {self.slot_bytes}")
        if not self._turn.acquire(timeout=-1 if (left := deadline.remaining()) is None else left):
            return Outcome(False, "the deadline is over")
        try:
            return self._send(key, blob, deadline)
        except OSError as error:
            self._break(str(error))
            return Outcome(False, self._broken)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Waits for a chunk under way, which its deadline bounds. Idempotent."""
        with self._turn:
            if self._closed:
                return
            self._closed = True
            self._break("closed")
            quiet = self._worker.close(0.0 if self._writing else 5.0)
            self._staging.release(quiet=quiet)

    def _introduce(self, deadline: Deadline) -> Welcome:
        _say(self._connection, Hello(VERSION), deadline)
        welcome = _hear(self._connection, deadline)
        if not isinstance(welcome, Welcome) or welcome.version != VERSION:
            raise ProtocolError(f"no receiver of version {VERSION}: {welcome}")
        return welcome

    def _first_write(self, scratch: int, deadline: Deadline) -> None:
        """Reach the receiver's engine; connections to an earlier process at its address fail here."""
        if not any(self._write(scratch, SCRATCH_BYTES, deadline) for _ in range(_FIRST_WRITES)):
            raise ConnectionError(f"the engine at {self._session} cannot be written to")

    def _send(self, key: str, blob: memoryview, deadline: Deadline) -> Outcome:
        if self._broken or deadline.over:
            return Outcome(False, self._broken or "the deadline is over")
        self._staging.view[: len(blob)] = blob
        _say(self._connection, Offer(key, len(blob)), deadline)
        answer = _hear(self._connection, deadline)
        if isinstance(answer, Grant):
            if begun := not deadline.over:
                self._write_whole(answer.pointer, len(blob), deadline)
            end = Landed() if begun and not deadline.over else Abandoned()
            _say(self._connection, end, Deadline(_LAST_WORD_SECONDS))
            answer = _hear(self._connection, deadline)
        if not isinstance(answer, Verdict):
            raise ProtocolError("a verdict was due")
        return Outcome(answer.taken, answer.reason)

    def _write_whole(self, target: int, size: int, deadline: Deadline) -> None:
        """Raises ConnectionError when it failed: bytes that are under way may still arrive, and late."""
        if not self._write(target, size, deadline):
            raise ConnectionError("the write failed")

    def _write(self, target: int, size: int, deadline: Deadline) -> bool:
        """Raises TimeoutError when the native call goes on: nobody may then say that it is over."""
        result: list[bool] = []

        def write() -> None:
            result.append(self._engine.write(self._session, self._staging.pointer, target, size))

        self._writing = True
        future = self._worker.submit(write)
        if future is None or not wait([future], deadline.remaining()).done:
            raise TimeoutError("the write did not end in time")
        self._writing = False
        return result == [True]

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._connection.close()
