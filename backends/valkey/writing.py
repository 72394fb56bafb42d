"""Publishing one blob."""

from __future__ import annotations

from sgkv.backends.base import PutItem, Status
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import prepared
from sgkv.backends.remote.endings import Abandoned, Unreachable
from sgkv.backends.valkey.requests import Request
from sgkv.backends.valkey.resp import Refusal, bulk
from sgkv.backends.valkey.wire import Connection

LARGEST_VALUE = 512 << 20
"""Bytes: ``proto-max-bulk-len``, which a server may be told to make larger or smaller."""


class Write(Request):
    """SET of a new key, with the blob's own expiry.

    The command ends after the value, and that end is said only if the deadline is not over when the last
    byte has been read from the caller's buffers: the server executes nothing that has no end.
    """

    def __init__(self, name: bytes, item: PutItem) -> None:
        super().__init__(name, item.size)
        self._item = item
        self._prepared = False
        options = [b"NX"] + ([b"EXAT", b"%d" % item.expires_at] if item.expires_at else [])
        words = 3 + len(options)
        self._head = b"*%d\r\n$3\r\nSET\r\n%b$%d\r\n" % (words, bulk(name), item.size)
        self._end = b"\r\n" + b"".join(map(bulk, options))

    def send(self, connection: Connection, deadline: Deadline | None) -> None:
        if not self._prepare(deadline):
            self.status = Status.ERROR
            return
        self._ask(connection)
        connection.say(self._head)
        connection.send(self._item.buffers, deadline)
        if deadline is not None and deadline.over:
            raise Abandoned
        connection.say(self._end)

    def receive(self, connection: Connection, deadline: Deadline | None) -> None:
        if self.status is not None:
            return
        answer = self._answer(connection, deadline)
        if isinstance(answer, Refusal):
            self._refused(answer)
        elif answer == "OK":
            self.status = Status.OK
        elif answer is None:
            self.status = Status.EXISTS
        else:
            raise Unreachable(f"{answer!r} where a blob was due to be taken")

    def _prepare(self, deadline: Deadline | None) -> bool:
        """Once, also where the request is sent a second time."""
        if not self._prepared:
            with landing(deadline) as admitted:  # the item's own work touches the caller's buffers
                if not admitted:
                    raise Abandoned
                self._prepared = prepared(self._item)
        return self._prepared
