"""A server that says what a test wants it to: what no real one can be made to say on demand."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO, Self

from sgkv.backends.valkey import ValkeyOptions

Answer = Callable[[Sequence[bytes]], bytes | None]


class Script:
    """``with Script(answer) as script``: every request is read whole, then answered by `answer` of its words.

    None hangs up. A transaction of a read is answered at its end, by `answer` of the words before EXEC.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.requests: Counter[str] = Counter()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as stream:
                while (words := _request(stream)) is not None:
                    self.requests[words[0].decode()] += 1
                    answer = self._answer(words)
                    if answer is None:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    connection.sendall(answer)
        except (OSError, ValueError):
            return


def _request(stream: BinaryIO) -> list[bytes] | None:
    head = stream.readline()
    if not head:
        return None
    words = []
    for _ in range(int(head[1:])):
        size = int(stream.readline()[1:])
        words.append(stream.read(size + 2)[:size])
    return words


def reads(body: bytes, *, before: bytes = b"*2\r\n:1\r\n") -> Answer:
    """Answers to everything as a server that holds one blob would, `body` being what a GETRANGE comes to."""
    usual = {b"EXISTS": b"+QUEUED\r\n", b"GETRANGE": b"+QUEUED\r\n", b"MULTI": b"+OK\r\n"}

    def answer(words: Sequence[bytes]) -> bytes | None:
        if words[0] == b"EXEC":
            return before + body
        return usual.get(words[0], b"-ERR this script knows no such command\r\n")

    return answer


def impatient(script: Script) -> ValkeyOptions:
    """How to reach a script without waiting long for what it never says."""
    return ValkeyOptions(address=script.address, connect_timeout=1.0, read_timeout=0.5)
