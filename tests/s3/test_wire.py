"""A server that does not keep to HTTP, or to a pace: what it says out of turn is never an answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sgkv.backends.base import GetItem, Part, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.s3 import S3Backend
from sgkv.testing.s3.double import S3Double, options_for
from sgkv.testing.s3.mischief import Trouble
from tests.backends.blobs import blob, get, key_of, put
from tests.s3.conftest import Open

pytestmark = pytest.mark.slow

_SECONDS = 10.0
_ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_DRIP = b"<drips>"
"""In an answer: from here on a byte now and then, for as long as anybody listens."""
_ALONE = {"attempts": 1, "list_seconds": None, "absent_seconds": 0.0, "present_seconds": 0.0}


class Script:
    """Answers the head of each request by its method, and reads no body."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._open: list[socket.socket] = []
        self.connections = 0
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_SECONDS)
        for connection in self._open:
            connection.close()

    def _run(self) -> None:
        try:
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except OSError:
            return

    def _serve(self, connection: socket.socket) -> None:
        received = b""
        try:
            while piece := connection.recv(4096):
                received += piece
                if b"\r\n\r\n" in received:
                    method = received.partition(b" ")[0]
                    self._say(connection, self._answers[method])
                    if method == b"PUT":
                        return
                    received = b""
        except OSError:
            return

    @staticmethod
    def _say(connection: socket.socket, answer: bytes) -> None:
        whole, drips, _ = answer.partition(_DRIP)
        connection.sendall(whole)
        while drips:  # until the other side has had enough
            connection.sendall(b"x")
            time.sleep(0.02)


@pytest.fixture
def script() -> Iterator[list[Script]]:
    running: list[Script] = []
    yield running
    for server in running:
        server.close()


def backend_of(script: list[Script], open_s3: Open, **answers: bytes) -> S3Backend:
    script.append(Script({method.encode(): answer for method, answer in answers.items()}))
    return open_s3(options_for(script[0].endpoint, **_ALONE, read_timeout=0.5))


def test_a_connection_that_said_too_much_is_not_used_again(script: list[Script], open_s3: Open) -> None:
    """The rest would pass for the answer to the next request: here, that another key is there too."""
    backend = backend_of(script, open_s3, HEAD=_ABSENT + _TAKEN)
    for number in range(3):
        assert backend.contains([key_of(number)]) == [False]
    assert script[0].connections == 3


def test_a_write_that_was_not_taken_whole_is_no_success(script: list[Script], open_s3: Open) -> None:
    backend = backend_of(script, open_s3, HEAD=_ABSENT, PUT=_TAKEN)
    assert put(backend, key_of(1), bytes(32 << 20)) is Status.ERROR  # more than sockets hold on the way


@pytest.mark.parametrize(
    "ask",
    [
        lambda backend: backend.contains([key_of(1)]),
        lambda backend: get(backend, key_of(1), 5) is not Status.TIMEOUT,
        lambda backend: put(backend, key_of(1), b"bytes") is Status.OK,
        lambda backend: backend.delete([key_of(1)]),
    ],
    ids=["head", "get", "put", "delete"],
)
@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 <drips>", b"HTTP/1.1 500 -\r\nContent-Length: 9999\r\n\r\n<drips>"]
)
def test_a_server_that_drips_holds_no_thread_for_long(
    script: list[Script], open_s3: Open, ask: Callable[[S3Backend], object], answer: bytes
) -> None:
    """Never silent for as long as a read may be, and never done; the caller sets no deadline."""
    backend = backend_of(script, open_s3, **dict.fromkeys(("HEAD", "GET", "PUT", "DELETE"), answer))
    began = time.monotonic()
    assert ask(backend) in (False, [False])
    assert time.monotonic() - began < _SECONDS / 2


def test_a_write_is_done_when_the_server_says_so_however_long_it_goes_on(
    script: list[Script], open_s3: Open
) -> None:
    taken = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<drips>"
    backend = backend_of(script, open_s3, HEAD=_ABSENT, PUT=taken, DELETE=taken)
    assert put(backend, key_of(1), b"bytes") is Status.OK
    backend.delete([key_of(1)])
    assert not [name for name in backend.stats().counters if name.startswith("errors")]
    assert script[0].connections == 2  # the first still dripped when the second was needed


_MIB = 1 << 20


def fetched(backend: S3Backend, size: int) -> tuple[Status, bytearray]:
    into = bytearray(size)
    (status,) = backend.get([GetItem(key_of(1), [Part(0, memoryview(into))])])
    return status, into


@pytest.mark.parametrize("odd", [-1, 0, 4097])
@pytest.mark.parametrize("quarters", [1, 17])
def test_large_answers_come_whole_whatever_their_size(
    script: list[Script], open_s3: Open, quarters: int, odd: int
) -> None:
    """In one go or in many, and with the connection good for the next."""
    data = blob(quarters * _MIB // 4 + odd)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    backend = backend_of(script, open_s3, GET=head + data)
    assert fetched(backend, len(data)) == (Status.OK, data)
    assert fetched(backend, len(data)) == (Status.OK, data)
    assert script[0].connections == 1


def test_a_large_answer_that_stops_is_silence(script: list[Script], open_s3: Open) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {4 * _MIB}\r\n\r\n".encode()
    backend = backend_of(script, open_s3, GET=head + bytes(2 * _MIB + 5))
    assert fetched(backend, 4 * _MIB)[0] in (Status.ERROR, Status.TIMEOUT)
    assert backend.stats().counters["errors_silent"] == 1


def test_a_large_answer_that_trickles_is_not_silence(script: list[Script], open_s3: Open) -> None:
    """Never as much at a time as is waited for, and never nothing for as long as a read may be silent."""
    data = bytes(_MIB) + b"x" * 60  # as a server drips
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    backend = backend_of(script, open_s3, GET=head + bytes(_MIB) + _DRIP)
    into = bytearray(len(data))
    item = GetItem(key_of(1), [Part(0, memoryview(into))])
    assert backend.get([item], Deadline(_SECONDS)) == [Status.OK]
    assert into == data


def test_a_large_answer_that_breaks_off_is_an_error_at_once(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    backend = open_s3(double.options(prefix=prefix, **{**_ALONE, "read_timeout": 60.0}))
    assert put(backend, key_of(1), bytes(4 * _MIB)) is Status.OK
    double.mischief.choose = lambda method, path: Trouble(half=True) if method == "GET" else None
    began = time.monotonic()
    assert fetched(backend, 4 * _MIB)[0] is Status.ERROR
    assert time.monotonic() - began < _SECONDS


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_a_part_says_how_large_the_whole_is(double: S3Double, open_s3: Open, prefix: str, plane: str) -> None:
    """Else a chunk of which one page is read would count as that page against the capacity."""
    data = blob(300_000)
    options = double.options(prefix=prefix, plane=plane, list_seconds=None)
    assert put(open_s3(options), key_of(1), data) is Status.OK
    reader = open_s3(options, capacity=1 << 20)
    into = bytearray(1000)
    assert reader.get([GetItem(key_of(1), [Part(5000, memoryview(into))])]) == [Status.OK]
    assert into == data[5000:6000]
    assert reader.stats().used_bytes == 300_000


_HUGE = b"9" * 5000
"""More digits than Python makes a number of."""


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: " + _HUGE + b"\r\n\r\n",
        b"HTTP/1.1 " + _HUGE + b" OK\r\n\r\n",
        b"HTTP/1.1 206 OK\r\nContent-Length: 5\r\nContent-Range: bytes 0-" + _HUGE + b"/7\r\n\r\nhello",
    ],
    ids=["length", "status", "range"],
)
def test_numbers_beyond_all_bounds_are_no_answer(script: list[Script], open_s3: Open, answer: bytes) -> None:
    backend = backend_of(script, open_s3, GET=answer)
    assert get(backend, key_of(1), 5) is Status.ERROR


def test_interim_answers_without_end_hold_no_thread(script: list[Script], open_s3: Open) -> None:
    backend = backend_of(script, open_s3, GET=b"HTTP/1.1 100 -\r\n\r\n" * 4_000_000)
    began = time.monotonic()
    assert backend.get([GetItem(key_of(1), [Part(0, memoryview(bytearray(5)))])]) == [Status.TIMEOUT]
    assert time.monotonic() - began < _SECONDS / 2
