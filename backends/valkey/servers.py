"""Connections to each server that is talked to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Unreachable
from sgkv.backends.remote.kept import Kept
from sgkv.backends.valkey.wire import Connection

_MOST_SERVERS = 1024
"""More than clusters have; a server that sends us to ever new ones is none of theirs."""

Dial = Callable[[str, Deadline | None], Connection]


class Servers:
    """Any thread."""

    def __init__(self, dial: Dial, most_idle: int) -> None:
        """At most `most_idle` connections to a server are kept between requests."""
        self._dial = dial
        self._most_idle = most_idle
        self._lock = threading.Lock()
        self._kept: dict[str, Kept[Connection]] = {}

    def take(self, address: str, deadline: Deadline | None) -> tuple[Connection, bool]:
        """A connection, and whether it has served before: then it may be dead for all we know."""
        kept = self._of(address).take()
        return (self._dial(address, deadline), False) if kept is None else (kept, True)

    def give(self, address: str, connection: Connection) -> None:
        """Take back a connection whose answers were all read."""
        self._of(address).give(connection)

    def drop(self, address: str) -> None:
        """Close what is idle there: the name may lead to another machine by now."""
        self._of(address).drop()

    def close(self) -> None:
        with self._lock:
            kept = list(self._kept.values())
        for each in kept:
            each.close()

    def _of(self, address: str) -> Kept[Connection]:
        with self._lock:
            kept = self._kept.get(address)
            if kept is None:
                if len(self._kept) >= _MOST_SERVERS:
                    raise Unreachable(f"{address} is one server too many")
                kept = self._kept[address] = Kept(self._most_idle)
            return kept
