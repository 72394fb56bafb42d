"""One connection's bytes, from and into the caller's buffers, never copied between.

The socket never blocks: a thread waits for it outside of any landing, and what is there then lands at
once, in as many buffers as it fills.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections.abc import Sequence

from sgkv.backends.base import Buffer
from sgkv.backends.buffers import after, cut_tail
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable

_IOV_MAX = 1024
_SKIP_PIECE = 65_536
_LUMP, _LUMP_SECONDS = 256 << 10, 0.05
"""Bytes of a large answer worth waking a thread for, where every segment would otherwise; for how long."""
_READ, _WRITE = select.POLLIN, select.POLLOUT


class Stream:
    """Not thread-safe. After an exception only `close` is of use."""

    def __init__(self, sock: socket.socket, read_timeout: float) -> None:
        """`sock` is connected; `read_timeout` seconds of silence end a call with Silent."""
        sock.setblocking(False)
        self._sock = sock
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._timeout = read_timeout
        self._poll = select.poll()
        self._lump = 1
        self._early = b""
        """Bytes that came along with what was asked for, and belong to what follows."""

    @property
    def stale(self) -> bool:
        """Whether an idle connection has something to say: its end, or more than it was asked for."""
        if self._early or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
            return True
        self._poll.register(self._sock, _READ)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._sock.close()

    def send(self, buffers: Sequence[Buffer], deadline: Deadline | None, *, listening: bool = False) -> bool:
        """Send everything; what has been sent is read from the buffers no more.

        False where the peer will not take all of it, which what it says may explain; with `listening` also
        where it begins to say something before it has.
        """
        left = [buffer for buffer in buffers if len(buffer)]
        # A TLS record need not be an answer.
        events = _READ | _WRITE if listening and not self._secure else _WRITE
        while left:
            sent = self._try_send(left)
            if sent:
                left = after(left, sent)
            if sent is None or (not sent and self._wait(events, deadline) & events & _READ):
                return False
        return True

    def fill(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
        """The next bytes into `buffers`, each piece inside a landing."""
        much, rest = cut_tail(buffers, _LUMP)
        if self._secure or sum(map(len, much)) < _LUMP:
            self._fill(buffers, deadline)
            return
        self._wake_at(_LUMP)
        self._fill(much, deadline)
        self._wake_at(1)  # what follows the rest may be less than a lump, or nothing
        self._fill(rest, deadline)

    def _fill(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
        left = [buffer for buffer in buffers if len(buffer)]
        if self._early and left:
            left = self._land_early(left, deadline)
        while left:
            with landing(deadline) as admitted:
                if not admitted:
                    raise Abandoned
                filled = self._try_receive_into(left)
            if filled is None and self._lump > 1:
                self._wait_for_lump(deadline)
            elif filled is None:
                self._wait(_READ, deadline)
            elif filled:
                left = after(left, filled)
            else:
                raise Unreachable("the connection ended before its answer did")

    def skip(self, length: int, deadline: Deadline | None) -> None:
        """Pass over the next `length` bytes."""
        scratch = memoryview(bytearray(min(length, _SKIP_PIECE)))
        while length:
            piece = scratch[: min(length, len(scratch))]
            self.fill([piece], deadline)
            length -= len(piece)

    def receive(self, most: int, deadline: Deadline | None) -> bytes:
        """What is there, at least a byte of it. Raises Unreachable at the end of the stream."""
        if self._early:
            piece, self._early = self._early, b""
            return piece
        scratch = memoryview(bytearray(most))
        while (filled := self._try_receive_into([scratch])) is None:
            self._wait(_READ, deadline)
        if not filled:
            raise Unreachable("the connection was closed")
        return bytes(scratch[:filled])

    def give_back(self, early: bytes) -> None:
        """Put bytes that `receive` gave too many before everything else."""
        self._early = early + self._early

    def _try_send(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes taken, 0 where none can be taken yet, None where none will be."""
        try:
            if self._secure:
                return self._sock.send(buffers[0])
            return self._sock.sendmsg(buffers[:_IOV_MAX])
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except (BrokenPipeError, ConnectionResetError):
            return None
        except OSError as error:
            raise Unreachable(f"sending: {error}") from error

    def _wake_at(self, size: int) -> None:
        """Have waits end when so many bytes are there, or the end of the stream."""
        if size != self._lump:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self._lump = size

    def _wait_for_lump(self, deadline: Deadline | None) -> None:
        """Where none comes soon, be content with less: how long silence may last is not changed by this."""
        left = None if deadline is None else deadline.remaining()
        self._poll.register(self._sock, _READ)
        limit = _LUMP_SECONDS if left is None else min(_LUMP_SECONDS, left)
        if not self._poll.poll(math.ceil(limit * 1000)):
            self._wake_at(1)

    def _land_early(self, left: list[Buffer], deadline: Deadline | None) -> list[Buffer]:
        view = memoryview(self._early)
        used = 0
        with landing(deadline) as admitted:
            if not admitted:
                raise Abandoned
            for buffer in left:
                piece = view[used : used + len(buffer)]
                buffer[: len(piece)] = piece
                used += len(piece)
        self._early = self._early[used:]
        return after(left, used)

    def _try_receive_into(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes filled, 0 at the end of the stream, None where nothing is there yet."""
        try:
            if self._secure:
                return self._sock.recv_into(buffers[0])
            return self._sock.recvmsg_into(buffers[:_IOV_MAX])[0]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise Unreachable(f"receiving: {error}") from error

    def _wait(self, events: int, deadline: Deadline | None) -> int:
        """Until the socket is ready for one of `events`; says for which."""
        if deadline is not None and deadline.over:
            raise Abandoned
        left = None if deadline is None else deadline.remaining()
        late = left is not None and left < self._timeout
        limit = self._timeout if left is None else min(self._timeout, left)
        self._poll.register(self._sock, events)
        ready = self._poll.poll(math.ceil(limit * 1000))
        if ready:
            return ready[0][1]
        if late:
            raise Abandoned
        raise Silent(f"silent for {self._timeout} s")
