"""Connections that are kept for the next request."""

from __future__ import annotations

import socket
import ssl
import threading
import time

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.s3.address import Address
from sgkv.backends.s3.wire import Connection

_IDLE_SECONDS = 15.0
"""Servers close idle connections; younger than any does, a kept one is a safe bet."""


class Connections:
    """The most recently used first, so that a burst's surplus grows old and is closed."""

    def __init__(
        self,
        address: Address,
        *,
        verify: bool | str = True,
        connect_timeout: float = 1.0,
        read_timeout: float = 5.0,
        most_idle: int = 64,
    ) -> None:
        """`verify` as in `S3Options`; timeouts in seconds. Raises OSError for a CA file it cannot read."""
        self._address = address
        self._tls = _context(verify) if address.secure else None
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._most_idle = most_idle
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection]] = []
        self._closed = False

    def take(self, deadline: Deadline | None) -> tuple[Connection, bool]:
        """A connection, and whether it has served before: then it may be dead for all we know."""
        while (kept := self._pop()) is not None:
            left_at, connection = kept
            if time.monotonic() - left_at < _IDLE_SECONDS and not connection.stale:
                return connection, True
            connection.close()
        return self._connect(deadline), False

    def give(self, connection: Connection) -> None:
        """Keep a connection whose last answer was read to its end."""
        with self._lock:
            if connection.reusable and not self._closed and len(self._idle) < self._most_idle:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _pop(self) -> tuple[float, Connection] | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _connect(self, deadline: Deadline | None) -> Connection:
        left = None if deadline is None else deadline.remaining()
        limit = self._connect_timeout if left is None else min(self._connect_timeout, left)
        if limit <= 0:
            raise Abandoned
        try:
            sock = socket.create_connection((self._address.host, self._address.port), limit)
        except TimeoutError as error:
            raise Silent(f"no connection within {limit:.3g} s") from error
        except OSError as error:
            raise Unreachable(f"connecting: {error}") from error
        try:
            return Connection(self._prepared(sock), self._read_timeout)
        except OSError as error:
            sock.close()
            raise Unreachable(f"connecting: {error}") from error

    def _prepared(self, sock: socket.socket) -> socket.socket:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return sock
        return self._tls.wrap_socket(sock, server_hostname=self._address.host)


def _context(verify: bool | str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    except OSError as error:
        raise OSError(f"certificate authorities cannot be read from {verify}: {error}") from error
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
