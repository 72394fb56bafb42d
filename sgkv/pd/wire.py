"""What sender and receiver say to each other beside the data: small framed msgpack messages."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import msgspec

from sgkv.backends.deadline import Deadline

VERSION = 2
MAX_MESSAGE = 4096
"""Bytes; whoever announces more is not one of us."""
_LENGTH = struct.Struct("<I")
_READ = 64 << 10


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Anything that is said."""


class Hello(Message, frozen=True):
    """The sender's first word."""

    version: int
    token: str = ""


class Welcome(Message, frozen=True):
    """The receiver's answer: its engine, and places of `size` bytes that are the sender's to write into."""

    session: str
    size: int
    places: list[int]
    """Their addresses."""
    scratch: int
    """An address for 8 bytes of a first write, which nobody reads."""


class Refused(Message, frozen=True):
    """The receiver's answer to somebody it does not serve."""

    reason: str


class Landed(Message, frozen=True):
    """A chunk is written. Its place is the receiver's until the verdict."""

    place: int
    """Position in `Welcome.places`."""
    key: str
    size: int


class Verdict(Message, frozen=True):
    """The end of one chunk: taken, or why not. Its place is the sender's again."""

    place: int
    taken: bool
    reason: str = ""


class Bye(Message, frozen=True):
    """The sender's last word: it will not write any more, and no write of its is under way."""


class ProtocolError(ConnectionError):
    """The other side said what it may not say now."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello | Welcome | Refused | Landed | Verdict | Bye).decode


class Wire:
    """A connection that messages travel over. One thread may say and another hear."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        with suppress(OSError):  # the other side has gone already: who says or hears next will learn it
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = bytearray()

    def say(self, message: Message, deadline: Deadline | None) -> None:
        """Raises OSError (TimeoutError when the deadline is over). Without one another thread may hear."""
        raw = _encode(message)
        if len(raw) > MAX_MESSAGE:
            raise ProtocolError(f"a message of {len(raw)} bytes: shorten the key")
        self._be_patient(deadline)
        self._connection.sendall(_LENGTH.pack(len(raw)) + raw)

    def hear(self, deadline: Deadline | None) -> Message:
        """The next message. Raises OSError: TimeoutError, ProtocolError, or that the other side is gone."""
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))
        if size > MAX_MESSAGE:
            raise ProtocolError(f"a message of {size} bytes was announced")
        try:
            message: Message = _decode(self._exactly(size, deadline))
        except msgspec.MsgspecError as error:
            raise ProtocolError(str(error)) from error
        return message

    def be_endless(self) -> None:
        """From now on neither direction has a deadline, and each may have a thread of its own."""
        self._connection.settimeout(None)

    def hang_up(self) -> None:
        """Wake whoever says or hears; they get an OSError. Idempotent, from any thread."""
        with suppress(OSError):  # it is down already
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    def _exactly(self, size: int, deadline: Deadline | None) -> bytes:
        while len(self._unread) < size:
            self._be_patient(deadline)
            piece = self._connection.recv(_READ)
            if not piece:
                raise ConnectionResetError("the other side has gone")
            self._unread += piece
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def _be_patient(self, deadline: Deadline | None) -> None:
        if deadline is None:
            return
        remaining = deadline.remaining()
        if remaining == 0:
            raise TimeoutError("the deadline is over")
        self._connection.settimeout(remaining)
