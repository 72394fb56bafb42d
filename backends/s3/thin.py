"""The thin data plane: signatures by botocore, bytes by the socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from botocore.credentials import ReadOnlyCredentials

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
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
_REJECTED = (400, 401, 403)
"""How a session that ended or was revoked is refused, with codes that are not documented."""
_REGION = "x-amz-bucket-region"
"""Where the bucket is, in errors of AWS ("HeadBucket", S3 API)."""
_DRAINABLE = 65_536
"""An unwanted rest of a body up to this is read, for the connection's sake."""

_Read = Callable[[Connection, Head, Deadline | None], Reply]


@dataclass(frozen=True, slots=True)
class _Request:
    """What to ask, unsigned, and how to read an answer that is no error."""

    method: str
    path: str
    read: _Read
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[Buffer] = ()


class ThinPlane(DataPlane):
    """Persistent connections; nothing between the socket and the caller's buffers."""

    def __init__(self, address: Address, keys: SigningKeys, connections: Connections) -> None:
        self._address = address
        self._keys = keys
        self._connections = connections

    def head(self, name: str, deadline: Deadline | None) -> Reply:
        return self._answer(_Request("HEAD", self._address.path(name), _headed), deadline)

    def get(self, name: str, window: Window, deadline: Deadline | None) -> Reply:
        wanted = {"Range": f"bytes={window.start}-{window.start + window.size - 1}"}
        read = partial(_landed, window)
        return self._answer(_Request("GET", self._address.path(name), read, wanted), deadline)

    def put(
        self, name: str, buffers: Sequence[Buffer], headers: Mapping[str, str], deadline: Deadline | None
    ) -> Reply:
        sized = {"Content-Length": str(sum(map(len, buffers))), **headers}
        return self._answer(_Request("PUT", self._address.path(name), _done, sized, buffers), deadline)

    def delete(self, name: str, deadline: Deadline | None) -> Reply:
        return self._answer(_Request("DELETE", self._address.path(name), _done), deadline)

    def close(self) -> None:
        self._connections.close()
        self._keys.close()

    def _answer(self, request: _Request, deadline: Deadline | None) -> Reply:
        """Once, and once more with other keys where these are refused."""
        keys = self._keys.current(deadline)
        reply = self._exchange(request, keys, deadline)
        if reply.status in _REJECTED and self._keys.reject(keys):
            reply = self._again(request, deadline)
        if reply.region == self._address.region:
            return replace(reply, region="")
        return reply

    def _again(self, request: _Request, deadline: Deadline | None) -> Reply:
        refused = False
        try:
            reply = self._exchange(request, self._keys.current(deadline), deadline)
            refused = reply.status in _REJECTED
        finally:
            self._keys.retried(refused=refused)
        return reply

    def _exchange(self, request: _Request, keys: ReadOnlyCredentials, deadline: Deadline | None) -> Reply:
        """One request; a kept connection that turns out to be dead is replaced by a new one, once."""
        raw = self._signed(request, keys)
        connection, kept = self._connections.take(deadline)
        try:
            head = _ask(connection, raw, request.body, deadline)
        except Unreachable as error:
            connection.close()
            if not kept or isinstance(error, Silent):
                raise
            connection, head = self._ask_anew(raw, request.body, deadline)
        except Abandoned:
            connection.close()
            raise
        try:
            reply = _answered(connection, head, request, deadline)
        except (Unreachable, Abandoned):
            connection.close()
            raise
        self._connections.give(connection)
        return reply

    def _signed(self, request: _Request, keys: ReadOnlyCredentials) -> bytes:
        """The head of a request as it is sent."""
        session = self._keys.session
        signed = sign(self._address, request.method, request.path, request.headers, keys, session=session)
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        return f"{request.method} {request.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

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


def _answered(connection: Connection, head: Head, request: _Request, deadline: Deadline | None) -> Reply:
    if 200 <= head.status < 300:
        return request.read(connection, head, deadline)
    region = head.headers.get(_REGION, "")
    if request.method == "HEAD" or head.status == 304:
        return Reply(head.status, region=region)
    found = _CODE.search(connection.read_text(head, deadline))
    return Reply(head.status, found[1].decode("latin-1") if found else "", region=region)


def _headed(connection: Connection, head: Head, deadline: Deadline | None) -> Reply:
    return Reply(head.status, size=head.length or 0, etag=head.headers.get("etag", ""))


def _done(connection: Connection, head: Head, deadline: Deadline | None) -> Reply:
    """An answer whose body, if any, is of no interest: what was asked for is done without it."""
    length = 0 if head.status == 204 else head.length
    if length is None or length > _DRAINABLE:
        connection.reusable = False
        return Reply(head.status, etag=head.headers.get("etag", ""))
    try:
        connection.skip(length, deadline)
    except (Unreachable, Abandoned):
        connection.reusable = False
    return Reply(head.status, etag=head.headers.get("etag", ""))


def _landed(window: Window, connection: Connection, head: Head, deadline: Deadline | None) -> Reply:
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
