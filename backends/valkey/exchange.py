"""Rows of requests: to the server of each key, several rows side by side, each one round trip."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.valkey.dialling import Denied
from sgkv.backends.valkey.requests import Redirect, Request
from sgkv.backends.valkey.servers import Servers
from sgkv.backends.valkey.topology import Topology
from sgkv.backends.valkey.wire import Connection
from sgkv.backends.workers import WorkerPool, spread_within

_ROW = 1 << 20
"""Bytes of a row. A server writes the answers to a whole row into memory before it sends them: of longer
rows they are no longer in its cache when they go. Shorter ones are not worth a round trip."""
_LONGEST = 10_000
"""Requests of a row."""
_PATIENCE = 60.0
"""Seconds for requests whose caller sets no deadline."""
_ROUNDS = 3
"""Redirects that a request follows, one fewer: the first may lead to where a slot was, the next is right."""


class Row(NamedTuple):
    """Requests that go over one connection together."""

    address: str
    requests: Sequence[Request]


class Exchange:
    """Any thread."""

    def __init__(self, servers: Servers, topology: Topology, faults: FaultLog) -> None:
        self._servers = servers
        self._topology = topology
        self._faults = faults

    def run(
        self, op: str, requests: Sequence[Request], pool: WorkerPool, deadline: Deadline | None
    ) -> list[Status]:
        """What became of each; `op` names them where failures are counted.

        A single row is carried in this thread, several by `pool`. Without a deadline of the caller's there
        is one all the same: a server that drips holds no thread for ever.
        """
        deadline = deadline or Deadline(_PATIENCE)
        waiting = list(requests)
        for _ in range(_ROUNDS):
            if not waiting or not self._topology.known(deadline):
                break
            self._round(op, waiting, pool, deadline)
            waiting = [request for request in waiting if request.redirect is not None]
        return [self._ended(op, request, deadline) for request in requests]

    def _round(
        self, op: str, requests: Sequence[Request], pool: WorkerPool, deadline: Deadline | None
    ) -> None:
        rows = list(self._rows(requests))
        if len(rows) == 1:
            self._carry(op, rows[0], deadline)
            return
        spread_within(pool, len(rows), lambda at: self._carry(op, rows[at], deadline), pool.threads, deadline)

    def _rows(self, requests: Sequence[Request]) -> Iterator[Row]:
        by_server: dict[str, list[Request]] = defaultdict(list)
        for request in requests:
            redirect = request.follow()
            address = redirect.address if redirect else self._topology.owner(request.name)
            by_server[address].append(request)
        for address, some in by_server.items():
            yield from (Row(address, row) for row in _cut(some))

    def _carry(self, op: str, row: Row, deadline: Deadline | None) -> None:
        """One row, and what a kept connection that turns out to be dead leaves of it once more."""
        try:
            if self._converse(row, deadline) is not None:
                self._servers.drop(row.address)  # those of its age are no better
                left = [request for request in row.requests if _open(request)]
                again = self._converse(Row(row.address, left), deadline)
                if again is not None:
                    raise again
        except Abandoned:
            return
        except Unreachable as error:
            late = deadline is not None and deadline.over
            self._faults.note(op, _kind(error), str(error))
            for request in filter(_open, row.requests):
                request.status = Status.TIMEOUT if late else Status.ERROR
            self._topology.suspect()
        self._learn(row)

    def _converse(self, row: Row, deadline: Deadline | None) -> Unreachable | None:
        """Send all, then read all. An error of a kept connection that may be another's is returned."""
        connection, kept = self._servers.take(row.address, deadline)
        try:
            _speak(connection, row.requests, deadline)
        except Abandoned:
            connection.close()
            raise
        except Unreachable as error:
            connection.close()
            if not kept or isinstance(error, Silent):
                raise
            return error
        self._servers.give(row.address, connection)
        return None

    def _learn(self, row: Row) -> None:
        """What answers say beside the requests: where keys are now, and who takes no writes any more."""
        for request in row.requests:
            if request.redirect is not None:
                request.redirect = _whole(request.redirect, row.address)
                self._topology.moved(request.name, request.redirect)
            elif request.failure is not None and request.failure[0] == "readonly":
                self._servers.drop(row.address)
                self._topology.suspect()

    def _ended(self, op: str, request: Request, deadline: Deadline | None) -> Status:
        if request.failure is not None:
            self._faults.note(op, *request.failure)
        if request.redirect is not None:
            self._faults.note(op, "moved", f"keys are at {request.redirect.address}: is cluster: true set?")
            return Status.ERROR
        if request.status is not None:
            return request.status
        return Status.TIMEOUT if deadline is not None and deadline.over else Status.ERROR


def _speak(connection: Connection, requests: Sequence[Request], deadline: Deadline | None) -> None:
    for request in requests:
        request.send(connection, deadline)
    connection.send((), deadline)
    for request in requests:
        request.receive(connection, deadline)


def _cut(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    row: list[Request] = []
    size = 0
    for request in requests:
        if row and (size + request.size > _ROW or len(row) == _LONGEST):
            yield row
            row, size = [], 0
        row.append(request)
        size += request.size
    if row:
        yield row


def _open(request: Request) -> bool:
    return request.status is None and request.redirect is None


def _whole(redirect: Redirect, said_by: str) -> Redirect:
    if not redirect.address.startswith(":"):
        return redirect
    return redirect._replace(address=said_by.rpartition(":")[0] + redirect.address)


def _kind(error: Unreachable) -> str:
    if isinstance(error, Denied):
        return "denied"
    return "silent" if isinstance(error, Silent) else "unreachable"
