"""Other ways to move the same objects: the standard library's HTTP client, and boto3."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from sgkv.backends.base import Buffer
from sgkv.bench.contest import Contender, Payload
from sgkv.bench.effort import BenchError

_PREFIX = "beside/"


class _Spread(Contender):
    """An object a page, moved by so many threads. `client` is boto3's, of the same bucket."""

    def __init__(self, client: Any, bucket: str, payload: Payload, threads: ThreadPoolExecutor) -> None:
        self._client = client
        self._bucket = bucket
        self._pages = payload.pages
        self._threads = threads
        self._names: list[str] = []

    def prepare(self, keys: Sequence[str]) -> None:
        self._names = [f"{_PREFIX}{type(self).__name__}/{key}" for key in keys]

    def put(self, keys: Sequence[str]) -> None:
        self._each(self._put)

    def get(self, keys: Sequence[str]) -> None:
        self._each(self._get)

    def _each(self, move: Callable[[int], None]) -> None:
        list(self._threads.map(move, range(len(self._pages))))

    @abstractmethod
    def _put(self, at: int) -> None: ...

    @abstractmethod
    def _get(self, at: int) -> None: ...


class Http(_Spread):
    """One kept connection a thread, URLs signed off the clock, `readinto` the pages.

    As boto3 below it creates objects only where there are none: that costs the server time, and a
    store that others write to as well cannot do without.
    """

    def __init__(self, client: Any, bucket: str, payload: Payload, threads: ThreadPoolExecutor) -> None:
        super().__init__(client, bucket, payload, threads)
        self._wires = Wires(client, bucket)
        self._urls: dict[str, list[str]] = {}

    def prepare(self, keys: Sequence[str]) -> None:
        super().prepare(keys)
        self._urls = {
            "put": [self._wires.sign("put_object", name) for name in self._names],
            "get": [self._wires.sign("get_object", name) for name in self._names],
        }

    def _put(self, at: int) -> None:
        page, wire = self._pages[at], self._wires.mine()
        wire.putrequest("PUT", self._urls["put"][at])
        wire.putheader("Content-Length", str(sum(map(len, page))))
        wire.putheader("If-None-Match", "*")
        wire.endheaders()
        for buffer in page:
            wire.send(buffer)
        finish(wire.getresponse())

    def _get(self, at: int) -> None:
        wire = self._wires.mine()
        wire.request("GET", self._urls["get"][at])
        answer = wire.getresponse()
        _read(answer, self._pages[at])
        finish(answer)


class Boto3(_Spread):
    """`get_object` and `readinto` the pages; `put_object` of the joined pages, for it takes no buffers."""

    def _put(self, at: int) -> None:
        body = b"".join(self._pages[at])
        self._client.put_object(Bucket=self._bucket, Key=self._names[at], Body=body, IfNoneMatch="*")

    def _get(self, at: int) -> None:
        body = self._client.get_object(Bucket=self._bucket, Key=self._names[at])["Body"]
        _read(body, self._pages[at])
        body.close()


class Wires:
    """A connection a thread to the endpoint of a boto3 client, for requests that are signed by URL."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._address = urlsplit(client.meta.endpoint_url)
        self._local = threading.local()

    def sign(self, operation: str, name: str) -> str:
        """Path and query of a request, good for an hour."""
        parameters = {"Bucket": self._bucket, "Key": name}
        url = urlsplit(self._client.generate_presigned_url(operation, parameters))
        return f"{url.path}?{url.query}"

    def mine(self) -> HTTPConnection:
        """The connection of the thread that asks."""
        wire: HTTPConnection | None = getattr(self._local, "wire", None)
        if wire is None:
            assert self._address.hostname is not None
            wire = self._local.wire = HTTPConnection(self._address.hostname, self._address.port, timeout=30)
        return wire


def finish(answer: HTTPResponse) -> None:
    """Read to the end. Raises BenchError for anything but success."""
    answer.read()
    if answer.status not in (200, 204):
        raise BenchError(f"the server answers {answer.status}")


def _read(body: Any, buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        filled = 0
        while filled < len(buffer):
            count = body.readinto(buffer[filled:])
            if not count:
                raise BenchError("a body ended early")
            filled += count
