"""Connections that are kept: the youngest serves, the surplus of a burst is closed."""

from __future__ import annotations

import time

import pytest

from sgkv.backends.remote import kept
from sgkv.backends.remote.kept import Kept


class Connection:
    """Between two requests."""

    def __init__(self) -> None:
        self.stale = self.closed = False

    def close(self) -> None:
        self.closed = True


def test_the_last_one_given_serves_next() -> None:
    connections: Kept[Connection] = Kept(2)
    first, second, third = Connection(), Connection(), Connection()
    for one in (first, second, third):
        connections.give(one)
    assert third.closed
    assert connections.take() is second
    assert connections.take() is first
    assert connections.take() is None


def test_one_with_something_to_say_does_not_serve() -> None:
    connections: Kept[Connection] = Kept(2)
    one = Connection()
    connections.give(one)
    one.stale = True
    assert connections.take() is None
    assert one.closed


def test_the_surplus_of_a_burst_is_closed_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_IDLE_SECONDS", 0.05)
    connections: Kept[Connection] = Kept(8)
    burst = [Connection() for _ in range(4)]
    for one in burst:
        connections.give(one)
    time.sleep(0.1)
    busy = Connection()
    connections.give(busy)
    assert all(one.closed for one in burst)
    assert connections.take() is busy


def test_closed_it_keeps_nothing() -> None:
    connections: Kept[Connection] = Kept(2)
    before, after = Connection(), Connection()
    connections.give(before)
    connections.close()
    connections.give(after)
    assert before.closed
    assert after.closed
    assert connections.take() is None
