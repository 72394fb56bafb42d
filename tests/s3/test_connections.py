"""Reaching an endpoint: whichever of its addresses answers, and no longer than the caller waits."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.s3.address import Address
from sgkv.backends.s3.connections import Connections


def connections_to(monkeypatch: pytest.MonkeyPatch, *ports: int, connect_timeout: float = 1.0) -> Connections:
    """To a host that has an address for each of the ports."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    address = Address(secure=False, host="kv", port=80, root="", region="", directory=False)
    return Connections(address, connect_timeout=connect_timeout)


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Has as many connections waiting as it takes, so that further ones get no answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            yield port


def test_another_address_is_tried(monkeypatch: pytest.MonkeyPatch, closed_port: int, open_port: int) -> None:
    connections = connections_to(monkeypatch, closed_port, open_port)
    connection, kept = connections.take(Deadline(5.0))
    assert not kept
    connection.close()


def test_no_address_answers(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    with pytest.raises(Unreachable, match="refused"):
        connections_to(monkeypatch, closed_port, closed_port).take(None)
    with pytest.raises(Unreachable, match="no address"):
        connections_to(monkeypatch).take(None)


def test_silence_is_told_from_refusal(monkeypatch: pytest.MonkeyPatch, silent_port: int) -> None:
    with pytest.raises(Silent):
        connections_to(monkeypatch, silent_port, connect_timeout=0.1).take(None)


def test_many_silent_addresses_take_no_longer_than_the_deadline(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    connections = connections_to(monkeypatch, *[silent_port] * 8)
    began = time.monotonic()
    with pytest.raises(Abandoned):
        connections.take(Deadline(0.3))
    assert time.monotonic() - began < 1.0
