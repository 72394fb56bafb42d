"""Plainer clients of a Valkey server: requests by hand on a socket, and valkey-py's pipeline."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from sgkv.backends.valkey.options import split_address
from sgkv.backends.valkey.resp import bulk, command
from sgkv.bench.contest import Contender, Page, Payload
from sgkv.bench.effort import BenchError

_PIECE = 65_536
_ROW = 4
"""Reads sent at once: a server makes all their answers before it sends one, and is slower with more."""


class ByHand(Contender):
    """One connection: writes are sent without a pause, answers to rows of reads go into the pages."""

    def __init__(self, address: str, payload: Payload) -> None:
        self._pages = payload.pages
        self._socket = socket.create_connection(split_address(address))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._names: list[bytes] = []

    def put(self, keys: Sequence[str]) -> None:
        self._names = [f"hand/{key}".encode() for key in keys]
        for name, page in zip(self._names, self._pages, strict=True):
            size = sum(map(len, page))
            self._socket.sendall(b"*3\r\n$3\r\nSET\r\n%b$%d\r\n" % (bulk(name), size))
            for buffer in page:
                self._socket.sendall(buffer)
            self._socket.sendall(b"\r\n")
        self._expect(b"+OK\r\n" * len(keys))

    def get(self, keys: Sequence[str]) -> None:
        requests = [command(b"GET", f"hand/{key}".encode()) for key in keys]
        for start in range(0, len(requests), _ROW):
            self._socket.sendall(b"".join(requests[start : start + _ROW]))
            for page in self._pages[start : start + _ROW]:
                self._read(page)

    def exist(self, names: Sequence[bytes]) -> int:
        """How many of these keys there are, in one round trip."""
        self._socket.sendall(b"".join(command(b"EXISTS", name) for name in names))
        answers = b""
        while answers.count(b"\n") < len(names):
            answers += self._socket.recv(_PIECE)
        return answers.count(b":1")

    def clear(self) -> None:
        self._socket.sendall(command(b"DEL", *self._names))
        self._expect(b":%d\r\n" % len(self._names))

    def close(self) -> None:
        self._socket.close()

    def _read(self, page: Page) -> None:
        self._expect(b"$%d\r\n" % sum(map(len, page)))
        for buffer in page:
            filled = 0
            while filled < len(buffer):
                filled += self._socket.recv_into(buffer[filled:])
        self._expect(b"\r\n")

    def _expect(self, wanted: bytes) -> None:
        found = b""
        while len(found) < len(wanted):
            piece = self._socket.recv(len(wanted) - len(found))
            if not piece:
                raise BenchError("the server hung up")
            found += piece
        if found != wanted:
            raise BenchError(f"the server answers {found[:40]!r}")


class Pipelined(Contender):
    """valkey-py: it takes one buffer a value, and gives new `bytes` that pages are filled from."""

    def __init__(self, client: Any, payload: Payload) -> None:
        self._client = client
        self._pages = payload.pages
        self._names: list[str] = []

    def put(self, keys: Sequence[str]) -> None:
        self._names = [f"client/{key}" for key in keys]
        pipeline = self._client.pipeline(transaction=False)
        for name, page in zip(self._names, self._pages, strict=True):
            pipeline.set(name, b"".join(page))
        pipeline.execute()

    def get(self, keys: Sequence[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.get(f"client/{key}")
        for page, value in zip(self._pages, pipeline.execute(), strict=True):
            _fill(page, value)

    def exist(self, names: Sequence[bytes]) -> int:
        """How many of these keys there are, in one round trip."""
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.exists(name)
        return sum(pipeline.execute())

    def clear(self) -> None:
        self._client.delete(*self._names)


def _fill(page: Page, value: bytes) -> None:
    view, start = memoryview(value), 0
    for buffer in page:
        buffer[:] = view[start : start + len(buffer)]
        start += len(buffer)
