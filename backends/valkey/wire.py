"""One connection: requests queued and sent together, answers read one by one."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from sgkv.backends.base import Buffer
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Unreachable
from sgkv.backends.remote.stream import Stream
from sgkv.backends.valkey.resp import Answer, Bulk, parse

_PIECE, _MAX_LINE = 4096, 65_536


class Connection:
    """Not thread-safe. After an exception only `close` is of use."""

    def __init__(self, sock: socket.socket, read_timeout: float) -> None:
        """`sock` is connected and let in; after `read_timeout` seconds of silence calls raise Silent."""
        self._stream = Stream(sock, read_timeout)
        self._queued: list[bytes] = []

    @property
    def stale(self) -> bool:
        """Whether an idle connection has something to say: its end, or more than it was asked for."""
        return self._stream.stale

    def close(self) -> None:
        self._stream.close()

    def say(self, words: bytes) -> None:
        """Queue a part of a request, for the next `send`."""
        self._queued.append(words)

    def send(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
        """Send what is queued, then `buffers`, which are read no more after that."""
        queued, self._queued = memoryview(b"".join(self._queued)), []
        if not self._stream.send([queued, *buffers], deadline):
            raise Unreachable("the server hung up")

    def answer(self, deadline: Deadline | None) -> Answer:
        """The next answer, or what it begins with."""
        received = self._stream.receive(_PIECE, deadline)
        while (end := received.find(b"\r\n")) < 0:
            if len(received) > _MAX_LINE:
                raise Unreachable("an answer whose line does not end")
            received += self._stream.receive(_PIECE, deadline)
        self._stream.give_back(received[end + 2 :])
        return parse(received[:end])

    def fill(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
        """The bytes of a bulk into `buffers`, and its end."""
        self._stream.fill(buffers, deadline)
        end = bytearray(2)
        self._stream.fill([memoryview(end)], deadline)
        if end != b"\r\n":
            raise Unreachable("a bulk that is longer than it said")

    def skip(self, bulk: Bulk, deadline: Deadline | None) -> None:
        """Pass over the bytes of a bulk."""
        self._stream.skip(bulk.size, deadline)
        self.fill([], deadline)
