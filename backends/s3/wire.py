"""One HTTP/1.1 connection whose bodies go from and into the caller's buffers, never copied between.

`http.client` reads bodies through a buffered file that blocks. Here the socket never blocks: a thread
waits for it outside of any landing, and what is there then lands at once, in as many buffers as it
fills. Only what S3 answers is understood: bodies with a length; another body is read as an error's
text, and ends the connection.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from sgkv.backends.base import Buffer
from sgkv.backends.buffers import after, cut_tail
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.s3.replies import Abandoned, Silent, Unreachable

_HEAD_PIECE, _MAX_HEAD = 4096, 65_536
_MAX_TEXT = 65_536
_IOV_MAX = 1024
_TAIL = 16_384
_READ, _WRITE = select.POLLIN, select.POLLOUT


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers of an answer; names in lower case."""

    status: int
    headers: dict[str, str]

    @property
    def length(self) -> int | None:
        value = self.headers.get("content-length", "")
        return int(value) if value.isdecimal() else None


class Connection:
    """Not thread-safe: one request at a time. After an exception only `close` is of use."""

    def __init__(self, sock: socket.socket, read_timeout: float) -> None:
        """`sock` is connected; `read_timeout` seconds of silence end a request with Silent."""
        sock.setblocking(False)
        self._sock = sock
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._timeout = read_timeout
        self._poll = select.poll()
        self._early = b""
        """Bytes of the body that came along with the head."""
        self.reusable = True

    @property
    def stale(self) -> bool:
        """Whether an idle connection has something to say: its end, or more than it was asked for."""
        if self._early or (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
            return True
        self._poll.register(self._sock, _READ)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._sock.close()

    def send(self, head: bytes, body: Sequence[Buffer], deadline: Deadline | None) -> bool:
        """Send a request. False, and early, where the server answers before it has read everything.

        The last piece of the body is copied, and sent only if the deadline is not over then: nothing
        that was read from buffers the caller may have taken back makes a complete request.
        """
        bulk, tail = cut_tail(body, _TAIL)
        if not self._send([memoryview(head), *bulk], deadline):
            return False
        final = b"".join(tail)
        if deadline is not None and deadline.over:
            raise Abandoned
        return self._send([memoryview(final)], deadline)

    def _send(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> bool:
        """False where the server would not take all of it, which its answer may explain."""
        left = [buffer for buffer in buffers if len(buffer)]
        events = _WRITE if self._secure else _READ | _WRITE  # a TLS record need not be an answer
        while left:
            sent = self._try_send(left)
            if sent:
                left = after(left, sent)
            if sent is None or (not sent and self._wait(events, deadline) & _READ):
                self.reusable = False
                return False
        return True

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

    def read_head(self, deadline: Deadline | None) -> Head:
        """The head of the answer; interim answers (1xx) are passed over."""
        received = bytearray()
        while True:
            while (end := received.find(b"\r\n\r\n")) < 0:
                if len(received) > _MAX_HEAD:
                    raise Unreachable("an answer without end of its head")
                received += self._receive(_HEAD_PIECE, deadline)
            head = _parse(bytes(received[:end]))
            del received[: end + 4]
            if head.status >= 200:
                self._early = bytes(received)
                if head.headers.get("connection", "").lower() == "close":
                    self.reusable = False
                return head

    def fill(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
        """The next bytes of the body into `buffers`, each piece inside a landing."""
        left = [buffer for buffer in buffers if len(buffer)]
        if self._early and left:
            left = self._land_early(left, deadline)
        while left:
            with landing(deadline) as admitted:
                if not admitted:
                    raise Abandoned
                filled = self._try_receive_into(left)
            if filled is None:
                self._wait(_READ, deadline)
            elif filled:
                left = after(left, filled)
            else:
                raise Unreachable("the body ended before its length")

    def skip(self, length: int, deadline: Deadline | None) -> None:
        """Pass over the next `length` bytes of the body."""
        scratch = memoryview(bytearray(min(length, _MAX_TEXT)))
        while length:
            piece = scratch[: min(length, len(scratch))]
            self.fill([piece], deadline)
            length -= len(piece)

    def read_text(self, head: Head, deadline: Deadline | None) -> bytes:
        """The body of an error, as far as it matters; a body of unknown length ends the connection."""
        length = head.length
        if length is not None and length <= _MAX_TEXT:
            text = bytearray(length)
            self.fill([memoryview(text)], deadline)
            return bytes(text)
        self.reusable = False
        text, self._early = bytearray(self._early), b""
        while len(text) < _MAX_TEXT and b"</Error>" not in text:
            try:
                text += self._receive(_HEAD_PIECE, deadline)
            except Unreachable:
                break
        return bytes(text)

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

    def _receive(self, most: int, deadline: Deadline | None) -> bytes:
        piece = memoryview(bytearray(most))
        while (filled := self._try_receive_into([piece])) is None:
            self._wait(_READ, deadline)
        if not filled:
            raise Unreachable("the connection was closed")
        return bytes(piece[:filled])

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


def _parse(head: bytes) -> Head:
    status, *lines = head.decode("latin-1").split("\r\n")
    words = status.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
        raise Unreachable("the answer is not HTTP")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if words[0] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return Head(int(words[1]), headers)
