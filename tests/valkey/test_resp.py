"""Whatever bytes come for an answer: a status or an end, and no byte beside the buffers."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Unreachable
from sgkv.backends.valkey.listing import literal
from sgkv.backends.valkey.reading import Read
from sgkv.backends.valkey.requests import Ask, Request
from sgkv.backends.valkey.resp import Bulk, Many, Refusal, command, parse
from sgkv.backends.valkey.wire import Connection
from sgkv.backends.valkey.writing import Write

RIGHT = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$4\r\ndata\r\n"
words = st.sampled_from(
    [
        b"+OK",
        b"+QUEUED",
        b":1",
        b":0",
        b"$4",
        b"$-1",
        b"*2",
        b"\r\n",
        b"data",
        b"-ERR no",
        b"-MOVED 1 a:1",
        b"9",
    ]
)


def told(request: Request, said: bytes) -> None:
    """Send a request to a peer that says `said` and nothing more."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours, 1.0)
    try:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        deadline = Deadline(5.0)
        request.send(connection, deadline)
        connection.send((), deadline)
        request.receive(connection, deadline)
    finally:
        connection.close()
        theirs.close()


@given(st.one_of(st.binary(max_size=200), st.lists(words, max_size=14).map(b"".join)))
def test_no_answer_is_believed_that_is_none(said: bytes) -> None:
    into = bytearray(b"." * 12)
    item = GetItem("key", [Part(0, memoryview(into)[4:8])])
    write = Write(b"key", PutItem("key", [memoryview(b"data")]))
    for request in (Read(b"key", item), Ask(b"EXISTS", b"key"), write):
        try:
            told(request, said)
        except Unreachable:
            continue
        assert (request.status is None) != (request.redirect is None)
    assert (into[:4], into[8:]) == (b"....", b"....")


@given(st.integers(0, len(RIGHT) - 1), st.integers(1, 255))
def test_one_wrong_byte_is_found_or_is_one_of_the_value(at: int, flip: int) -> None:
    said = bytearray(RIGHT)
    said[at] ^= flip
    into = bytearray(4)
    request = Read(b"key", GetItem("key", [Part(0, memoryview(into))]))
    try:
        told(request, bytes(said))
    except Unreachable:
        return
    if request.status is Status.OK:
        assert into == said[-6:-2]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"+OK", "OK"),
        (b":-3", -3),
        (b"$0", Bulk(0)),
        (b"$-1", None),
        (b"*12", Many(12)),
        (b"-OOM command not allowed", Refusal("OOM", "OOM command not allowed")),
    ],
)
def test_lines_are_what_the_protocol_says(line: bytes, answer: object) -> None:
    assert parse(line) == answer


@pytest.mark.parametrize(
    "line", [b"", b"x", b"$", b"$+4", b"$ 4", b"$4.0", b"*-2", b":" + b"9" * 40, b"_", b"%1"]
)
def test_other_lines_are_none(line: bytes) -> None:
    with pytest.raises(Unreachable):
        parse(line)


def test_requests_are_words_with_their_lengths() -> None:
    assert command(b"GET", b"a\r\nb") == b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n"


def test_a_pattern_matches_its_text_only() -> None:
    assert literal(b"a*b?[c]\\") == b"a\\*b\\?\\[c\\]\\\\"
