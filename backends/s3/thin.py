"""The thin data plane: signatures by botocore, bytes by the socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from sgkv.backends.base import Buffer
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.remote.spans import Window
from sgkv.backends.s3.address import Address
from sgkv.backends.s3.connections import Connections
from sgkv.backends.s3.keys import SigningKeys
from sgkv.backends.s3.plane import DataPlane
from sgkv.backends.s3.replies import Reply
from sgkv.backends.s3.signing import sign
from sgkv.backends.s3.wire import Connection, Head

_CODE = re.compile(rb"<Code>([^<]{1,64})</Code>")
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_REJECTED = (400, 401, 403)
"""How a session that ended or was revoked is refused, with codes that are not documented."""
_DRAINABLE = 65_536
"""An unwanted rest of a body up to this is read, for the connection's sake."""

_Read = Callable[[Connection, Head], Reply]


class ThinPlane(DataPlane):
    """Persistent connections; nothing between the socket and the caller's buffers."""

    def __init__(self, address: Address, keys: SigningKeys, connections: Connections) -> None:
        self._address = address
        self._keys = keys
        self._connections = connections

    def head(self, name: str, deadline: Deadline | None) -> Reply:
        return self._request("HEAD", name, {}, (), deadline, _headed)

    def get(self, name: str, window: Window, deadline: Deadline | None) -> Reply:
        stop = window.start + window.size
        headers = {"Range": f"bytes={window.start}-{stop - 1}"}

        def read(connection: Connection, head: Head) -> Reply:
            return _landed(connection, head, window, deadline)

        return self._request("GET", name, headers, (), deadline, read)

    def put(
        self, name: str, buffers: Sequence[Buffer], headers: Mapping[str, str], deadline: Deadline | None
    ) -> Reply:
        sized = {"Content-Length": str(sum(map(len, buffers))), **headers}
        return self._request("PUT", name, sized, buffers, deadline, _done)

    def delete(self, name: str, deadline: Deadline | None) -> Reply:
        return self._request("DELETE", name, {}, (), deadline, _done)

    def close(self) -> None:
        self._connections.close()
        self._keys.close()

    def _request(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str],
        body: Sequence[Buffer],
        deadline: Deadline | None,
        read: _Read,
    ) -> Reply:
        """Once, and once more with other keys where these are refused."""
        path = self._address.path(name)
        keys = self._keys.current(deadline)
        for again in (True, False):
            signed = sign(self._address, method, path, headers, keys, session=self._keys.session)
            lines = "".join(f"{field}: {value}\r\n" for field, value in signed.items())
            request = f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
            reply = self._exchange(method, request, body, deadline, read)
            if reply.status not in _REJECTED or not again or not self._keys.reject(keys):
                break
            keys = self._keys.current(deadline)
        return reply

    def _exchange(
        self, method: str, request: bytes, body: Sequence[Buffer], deadline: Deadline | None, read: _Read
    ) -> Reply:
        """One request; a kept connection that turns out to be dead is replaced by a new one, once."""
        connection, kept = self._connections.take(deadline)
        try:
            head = _ask(connection, request, body, deadline)
        except Unreachable as error:
            connection.close()
            if not kept or isinstance(error, Silent):
                raise
            connection, head = self._ask_anew(request, body, deadline)
        except Abandoned:
            connection.close()
            raise
        try:
            reply = _answered(connection, head, method, deadline, read)
        except (Unreachable, Abandoned):
            connection.close()
            raise
        self._connections.give(connection)
        return reply

    def _ask_anew(
        self, request: bytes, body: Sequence[Buffer], deadline: Deadline | None
    ) -> tuple[Connection, Head]:
        connection, kept = self._connections.take(deadline)
        while kept:  # the others of its age are no better
            connection.close()
            connection, kept = self._connections.take(deadline)
        try:
            return connection, _ask(connection, request, body, deadline)
        except (Unreachable, Abandoned):
            connection.close()
            raise


def _ask(connection: Connection, request: bytes, body: Sequence[Buffer], deadline: Deadline | None) -> Head:
    whole = connection.send(request, body, deadline)
    head = connection.read_head(deadline)
    if not whole and head.status < 300:
        raise Unreachable(f"{head.status} to a request that was not sent to its end")
    return head


def _answered(
    connection: Connection, head: Head, method: str, deadline: Deadline | None, read: _Read
) -> Reply:
    if 200 <= head.status < 300:
        return read(connection, head)
    if method == "HEAD" or head.status == 304:
        return Reply(head.status)
    found = _CODE.search(connection.read_text(head, deadline))
    return Reply(head.status, found[1].decode("latin-1") if found else "")


def _headed(connection: Connection, head: Head) -> Reply:
    return Reply(head.status, size=head.length or 0, etag=head.headers.get("etag", ""))


def _done(connection: Connection, head: Head) -> Reply:
    """An answer whose body, if any, is of no interest."""
    length = 0 if head.status == 204 else head.length
    if length is None or length > _DRAINABLE:
        connection.reusable = False
    else:
        connection.skip(length, None)
    return Reply(head.status, etag=head.headers.get("etag", ""))


def _landed(connection: Connection, head: Head, window: Window, deadline: Deadline | None) -> Reply:
    """Fill the window from an answer that really is about those bytes."""
    start, size, total = _extent(head)
    skipped = window.start - start
    if skipped < 0:
        raise Unreachable(f"asked for bytes from {window.start}, got them from {start}")
    etag = head.headers.get("etag", "")
    if size < skipped + window.size:
        connection.reusable = False
        return Reply(head.status, size=total, etag=etag)
    connection.skip(skipped, deadline)
    connection.fill(window.buffers, deadline)
    rest = size - skipped - window.size
    if rest > _DRAINABLE:
        connection.reusable = False
    else:
        connection.skip(rest, deadline)
    return Reply(head.status, size=total, etag=etag, filled=True)


def _extent(head: Head) -> tuple[int, int, int]:
    """Where in the object the body starts, its length, and that of the object as far as is known."""
    length = head.length
    if length is None:
        raise Unreachable("a body without a length")
    if head.status != 206:
        return 0, length, length  # the range was ignored: this is the whole object
    found = _RANGE.fullmatch(head.headers.get("content-range", ""))
    if found is None or int(found[2]) - int(found[1]) + 1 != length:
        raise Unreachable("a range that does not match its length")
    start = int(found[1])
    return start, length, start + length if found[3] == "*" else int(found[3])
