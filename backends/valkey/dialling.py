"""valkey-py opens connections: it knows addresses, TLS, users and databases. Commands of control are its.

Bytes of blobs go by our own `Connection` over the socket that it opened: its replies are new `bytes`
objects, which would have to be copied once more (docs/valkey.md has the figures).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import valkey
from valkey.connection import Connection as PlainConnection
from valkey.connection import ConnectionPool, SSLConnection
from valkey.exceptions import AuthenticationError, NoPermissionError, ResponseError, ValkeyError

from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.valkey.options import ValkeyOptions, split_address
from sgkv.backends.valkey.wire import Connection

Control: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""`Dialler.control`."""


_FAILURES = (ValkeyError, OSError, UnicodeError)
"""Of connections and commands; the last is a host name that cannot be one."""


class Denied(Unreachable):
    """The server does not let us in: user, password, certificate or rights."""


class Dialler:
    """Opens connections to any node. Any thread."""

    def __init__(self, options: ValkeyOptions) -> None:
        self._options = options
        self._kind = SSLConnection if options.tls else PlainConnection
        self._settings: dict[str, Any] = {
            "db": options.database,
            "username": options.username,
            "password": options.password,
            "lib_name": None,  # a user of an access control list need not be allowed to say it
            "lib_version": None,
        }
        if options.tls:
            self._settings |= _tls(options)

    def dial(self, address: str, deadline: Deadline | None) -> Connection:
        """A connection that is ready for commands. Raises Unreachable, Denied, Silent or Abandoned."""
        left = None if deadline is None else deadline.remaining()
        limit = self._options.connect_timeout if left is None else min(self._options.connect_timeout, left)
        if limit <= 0:
            raise Abandoned
        native = self._kind(**self._where(address, limit))
        try:
            native.connect()
        except _FAILURES as error:
            raise _explained(error, address) from error
        # The socket becomes ours; the object that opened it would close it when it is collected.
        sock, native._sock = native._sock, None  # noqa: SLF001 - there is no public way to take it over
        return Connection(sock, self._options.read_timeout)

    @contextmanager
    def control(self, address: str) -> Iterator[Any]:
        """valkey-py's client of one server, for commands of control.

        Inside, what goes wrong with the server is raised as ConnectionError.
        """
        where = self._where(address, self._options.connect_timeout, self._options.read_timeout)
        pool = ConnectionPool(self._kind, max_connections=1, **where)
        try:
            yield valkey.Valkey(connection_pool=pool)
        except _FAILURES as error:
            raise ConnectionError(f"{address}: {error}") from error
        finally:
            pool.disconnect()

    def _where(self, address: str, connecting: float, reading: float | None = None) -> dict[str, Any]:
        host, port = split_address(address)
        timeouts = {"socket_connect_timeout": connecting, "socket_timeout": reading or connecting}
        return {"host": host, "port": port, **timeouts, **self._settings}


def _tls(options: ValkeyOptions) -> dict[str, Any]:
    verified = options.verify is not False
    return {
        "ssl_cert_reqs": "required" if verified else "none",
        "ssl_check_hostname": verified,
        "ssl_ca_certs": options.verify if isinstance(options.verify, str) else None,
        "ssl_certfile": options.certificate,
        "ssl_keyfile": options.private_key,
    }


def _explained(error: Exception, address: str) -> Unreachable:
    what = f"connecting to {address}: {error}"
    if isinstance(error, valkey.exceptions.TimeoutError | TimeoutError):
        return Silent(what)
    if isinstance(error, AuthenticationError | NoPermissionError | ResponseError):
        return Denied(what)
    return Unreachable(what)
