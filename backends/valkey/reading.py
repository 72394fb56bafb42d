"""One blob's parts, of one version of it."""

from __future__ import annotations

from sgkv.backends.base import GetItem, Status
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.hooks import checked
from sgkv.backends.remote.endings import Abandoned, Unreachable
from sgkv.backends.remote.spans import Window, windows
from sgkv.backends.valkey.requests import Request, expect
from sgkv.backends.valkey.resp import Answer, Bulk, Many, Refusal, command
from sgkv.backends.valkey.wire import Connection

_ALL = 1 << 62
_FIRST = Window(0, [memoryview(bytearray(1))])
"""A byte that says as much as EXISTS, of any blob that is one."""
_BEGIN, _END = command(b"MULTI"), command(b"EXEC")


class Read(Request):
    """EXISTS and a GETRANGE a window, in a transaction.

    GETRANGE answers the same of a key that is not there and of a blob that ends before the range, and
    between two of them a key may get another value; in a transaction the answers are of one moment.
    """

    def __init__(self, name: bytes, item: GetItem) -> None:
        self._item = item
        self.key = item.key
        self._windows = list(windows(item.parts))
        super().__init__(name, sum(window.size for window in self._windows))

    def send(self, connection: Connection, deadline: Deadline | None) -> None:
        if self.asking:  # a transaction would need leave for each of its commands, and cannot ask for it
            self._windows = list(windows(self._item.parts, gap=_ALL, most=_ALL)) or [_FIRST]
            self._ask(connection)
            connection.say(b"".join(map(self._range, self._windows)))
            return
        ranges = b"".join(map(self._range, self._windows))
        connection.say(_BEGIN + command(b"EXISTS", self.name) + ranges + _END)

    def receive(self, connection: Connection, deadline: Deadline | None) -> None:
        if not self.asking and not self._begin(connection, deadline):
            return
        filled = [self._land(connection, window, deadline) for window in self._windows]
        if self.status is None and self.redirect is None:
            self.status = self._verdict(deadline) if all(filled) else Status.SHORT

    def _begin(self, connection: Connection, deadline: Deadline | None) -> bool:
        """Up to the first range; False where the transaction was refused."""
        count = 1 + len(self._windows)
        wanted: list[Answer] = ["OK", *["QUEUED"] * count, Many(count)]
        refusal: Refusal | None = None
        for want in wanted:
            answer = connection.answer(deadline)
            if isinstance(answer, Refusal):
                refusal = refusal or answer
            else:
                expect(want, answer)
        if refusal is not None:
            self._refused(refusal)
            return False
        exists = connection.answer(deadline)
        if exists not in (0, 1):
            raise Unreachable(f"{exists!r} where it was due to say whether a key exists")
        self.status = None if exists else Status.ABSENT
        return True

    def _land(self, connection: Connection, window: Window, deadline: Deadline | None) -> bool:
        """Fill a window; False where the blob ends before it does."""
        answer = self._answer(connection, deadline) if self.asking else connection.answer(deadline)
        size = self._size(answer, window)
        if size == window.size:
            connection.fill(window.buffers, deadline)
            return True
        if size is not None:
            connection.skip(Bulk(size), deadline)
            if self.asking and not size:
                self.status = Status.ABSENT
        return False

    def _size(self, answer: Answer, window: Window) -> int | None:
        """Bytes that follow; None where the range was refused."""
        if isinstance(answer, Refusal):
            self._refused(answer)
            return None
        if not isinstance(answer, Bulk) or answer.size > window.size:
            raise Unreachable(f"{answer!r} where up to {window.size} bytes were due")
        return answer.size

    def _verdict(self, deadline: Deadline | None) -> Status:
        with landing(deadline) as admitted:
            if not admitted:
                raise Abandoned
            return Status.OK if checked(self._item) else Status.CORRUPT

    def _range(self, window: Window) -> bytes:
        first, last = window.start, window.start + window.size - 1
        return command(b"GETRANGE", self.name, b"%d" % first, b"%d" % last)
