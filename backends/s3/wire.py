"""One HTTP/1.1 connection whose bodies go from and into the caller's buffers, never copied between.

`http.client` reads bodies through a buffered file that blocks; here they come through a `Stream`. Only what
S3 answers is understood: bodies with a length; another body is read as an error's text, and ends the
connection.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from sgkv.backends.base import Buffer
from sgkv.backends.buffers import cut_tail
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Unreachable
from sgkv.backends.remote.stream import Stream

_HEAD_PIECE, _MAX_HEAD = 4096, 65_536
_MAX_TEXT = 65_536
_TAIL = 16_384
_MAX_DIGITS = 19
"""Of a size; Python refuses to read a number of thousands."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers of an answer; names in lower case."""

    status: int
    headers: dict[str, str]

    @property
    def length(self) -> int | None:
        value = self.headers.get("content-length", "")
        return int(value) if value.isdecimal() and len(value) <= _MAX_DIGITS else None


class Connection:
    """Not thread-safe: one request at a time. After an exception only `close` is of use."""

    def __init__(self, sock: socket.socket, read_timeout: float) -> None:
        """`sock` is connected; `read_timeout` seconds of silence end a request with Silent."""
        self._stream = Stream(sock, read_timeout)
        self.fill, self.skip = self._stream.fill, self._stream.skip
        self.reusable = True

    @property
    def stale(self) -> bool:
        """Whether an idle connection has something to say: its end, or more than it was asked for."""
        return self._stream.stale

    def close(self) -> None:
        self._stream.close()

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
        whole = self._stream.send(buffers, deadline, listening=True)
        self.reusable &= whole
        return whole

    def read_head(self, deadline: Deadline | None) -> Head:
        """The head of the answer; interim answers (1xx) are passed over."""
        received = bytearray()
        while True:
            while (end := received.find(b"\r\n\r\n")) < 0:
                if len(received) > _MAX_HEAD:
                    raise Unreachable("an answer without end of its head")
                received += self._stream.receive(_HEAD_PIECE, deadline)
            head = _parse(bytes(received[:end]))
            del received[: end + 4]
            if head.status >= 200:
                self._stream.give_back(bytes(received))
                if head.headers.get("connection", "").lower() == "close":
                    self.reusable = False
                return head
            if deadline is not None and deadline.over:  # nor may these go on for ever
                raise Abandoned

    def read_text(self, head: Head, deadline: Deadline | None) -> bytes:
        """The body of an error, as far as it matters; a body of unknown length ends the connection."""
        length = head.length
        text = bytearray(length if length is not None and length <= _MAX_TEXT else 0)
        if length == len(text):
            self.fill([memoryview(text)], deadline)
            return bytes(text)
        self.reusable = False
        while len(text) < _MAX_TEXT and b"</Error>" not in text:
            try:
                text += self._stream.receive(_HEAD_PIECE, deadline)
            except Unreachable:
                break
        return bytes(text)


def _parse(head: bytes) -> Head:
    status, *lines = head.decode("latin-1").split("\r\n")
    words = status.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not _is_status(words[1]):
        raise Unreachable("the answer is not HTTP")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if words[0] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return Head(int(words[1]), headers)


def _is_status(word: str) -> bool:
    return len(word) == 3 and word.isdecimal()
