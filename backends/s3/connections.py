"""Connections to the endpoint of a bucket."""

from __future__ import annotations

import socket
import ssl

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.remote.kept import Kept
from sgkv.backends.s3.address import Address
from sgkv.backends.s3.wire import Connection


class Connections:
    """Made where none is left of those that were kept."""

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
        self._kept: Kept[Connection] = Kept(most_idle)

    def take(self, deadline: Deadline | None) -> tuple[Connection, bool]:
        """A connection, and whether it has served before: then it may be dead for all we know."""
        kept = self._kept.take()
        return (self._connect(deadline), False) if kept is None else (kept, True)

    def give(self, connection: Connection) -> None:
        """Keep a connection whose last answer was read to its end."""
        if connection.reusable:
            self._kept.give(connection)
        else:
            connection.close()

    def close(self) -> None:
        self._kept.close()

    def _connect(self, deadline: Deadline | None) -> Connection:
        try:
            sock = self._dialled(deadline)
        except TimeoutError as error:
            raise Silent(f"no connection within {self._connect_timeout:.3g} s") from error
        except OSError as error:
            raise Unreachable(f"connecting: {error}") from error
        try:
            sock.settimeout(self._limit(deadline))
            return Connection(self._prepared(sock), self._read_timeout)
        except OSError as error:
            sock.close()
            raise Unreachable(f"connecting: {error}") from error
        except Abandoned:
            sock.close()
            raise

    def _dialled(self, deadline: Deadline | None) -> socket.socket:
        """Connected to the first address that answers; each has the timeout, all together the deadline."""
        failure = OSError(f"{self._address.host} has no address")
        found = socket.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            limit = self._limit(deadline)
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(limit)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure

    def _limit(self, deadline: Deadline | None) -> float:
        """Seconds for the next step; raises Abandoned where none are left."""
        left = None if deadline is None else deadline.remaining()
        limit = self._connect_timeout if left is None else min(self._connect_timeout, left)
        if limit <= 0:
            raise Abandoned
        return limit

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
