"""Requests about one key each, which are sent in rows and answered in the same order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from sgkv.backends.base import Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.remote.endings import Unreachable
from sgkv.backends.valkey.options import split_address
from sgkv.backends.valkey.resp import Answer, Refusal, command
from sgkv.backends.valkey.wire import Connection

_ASKING = command(b"ASKING")
_KINDS = {
    "OOM": "full",
    "READONLY": "readonly",
    "LOADING": "loading",
    "MASTERDOWN": "loading",
    "CLUSTERDOWN": "cluster_down",
    "TRYAGAIN": "cluster_down",
    "NOAUTH": "denied",
    "NOPERM": "denied",
    "WRONGPASS": "denied",
}
"""What refusals are counted as; every other is ``refused``."""


class Redirect(NamedTuple):
    """Where a cluster says that a key is."""

    address: str
    """``:PORT`` is on the host that says it."""
    asking: bool
    """Only for this request: the key's slot is on its way to another node."""


class Request(ABC):
    """Sent and answered by one thread; nothing here is safe for two."""

    def __init__(self, name: bytes, size: int = 0) -> None:
        """`name` of the key on the server; `size` is roughly how many bytes the request moves."""
        self.name = name
        self.size = size
        self.status: Status | None = None
        """None until it has ended."""
        self.failure: tuple[str, str] | None = None
        """Kind and words of a refusal, to be counted."""
        self.redirect: Redirect | None = None
        self.asking = False

    @abstractmethod
    def send(self, connection: Connection, deadline: Deadline | None) -> None:
        """Queue or send the request; what is left queued is sent after that of the last request."""

    @abstractmethod
    def receive(self, connection: Connection, deadline: Deadline | None) -> None:
        """Read the answer to its end, and set `status` or `redirect`."""

    def follow(self) -> Redirect | None:
        """Go where the server said, if it did: the request can be sent again."""
        redirect, self.redirect = self.redirect, None
        self.asking = redirect is not None and redirect.asking
        return redirect

    def _ask(self, connection: Connection) -> None:
        if self.asking:
            connection.say(_ASKING)

    def _answer(self, connection: Connection, deadline: Deadline | None) -> Answer:
        """The answer to the request itself."""
        if self.asking:
            expect("OK", connection.answer(deadline))
        return connection.answer(deadline)

    def _refused(self, refusal: Refusal) -> None:
        """End as a refusal wants it."""
        if refusal.code in ("MOVED", "ASK"):
            self.redirect = _redirect(refusal)
            return
        self.failure = _KINDS.get(refusal.code, "refused"), refusal.text
        self.status = Status.FULL if refusal.code == "OOM" else Status.ERROR


class Ask(Request):
    """A command with a key and a number for an answer: EXISTS, UNLINK, TOUCH, STRLEN."""

    def __init__(self, verb: bytes, name: bytes) -> None:
        super().__init__(name)
        self._verb = verb
        self.number = 0

    def send(self, connection: Connection, deadline: Deadline | None) -> None:
        self._ask(connection)
        connection.say(command(self._verb, self.name))

    def receive(self, connection: Connection, deadline: Deadline | None) -> None:
        """OK where the number is positive, ABSENT where it is 0."""
        answer = self._answer(connection, deadline)
        if isinstance(answer, Refusal):
            self._refused(answer)
        elif isinstance(answer, int) and answer >= 0:
            self.number = answer
            self.status = Status.OK if answer else Status.ABSENT
        else:
            raise Unreachable(f"{answer!r} where a number was due")


def expect(wanted: Answer, answer: Answer) -> None:
    """Raises Unreachable where an answer is another: then nothing after it is where it should be."""
    if answer != wanted:
        raise Unreachable(f"{answer!r} where {wanted!r} was due")


def _redirect(refusal: Refusal) -> Redirect:
    """``MOVED SLOT HOST:PORT``; the host may be missing."""
    words = refusal.text.split(" ")
    address = words[2] if len(words) == 3 else ""
    try:
        split_address(address if not address.startswith(":") else f"here{address}")
    except ValueError as error:
        raise Unreachable(f"a redirect to nowhere: {refusal.text[:80]!r}") from error
    return Redirect(address, refusal.code == "ASK")
