"""What sender and receiver say to each other beside the data: small framed msgpack messages."""

from __future__ import annotations

import socket
import struct

import msgspec

from sgkv.backends.deadline import Deadline

VERSION = 1
MAX_MESSAGE = 4096
"""Bytes; whoever announces more is not one of us."""
_LENGTH = struct.Struct("<I")


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Anything that is said."""


class Hello(Message, frozen=True):
    """The sender's first word."""

    version: int


class Welcome(Message, frozen=True):
    """The receiver's answer: where its engine is, and the most bytes that a chunk may have."""

    version: int
    session: str
    slot_bytes: int
    scratch: int
    """An address for 8 bytes of a first write, which nobody reads."""


class Offer(Message, frozen=True):
    """A chunk of `size` bytes is there to be sent."""

    key: str
    size: int


class Grant(Message, frozen=True):
    """The chunk may be written to this address of the receiver."""

    pointer: int


class Landed(Message, frozen=True):
    """All of the chunk is written; the sender will not touch the address again."""


class Abandoned(Message, frozen=True):
    """The chunk is not, or not wholly, written; the sender will not touch the address again."""


class Verdict(Message, frozen=True):
    """The end of one chunk: taken, or why not."""

    taken: bool
    reason: str = ""


class ProtocolError(ConnectionError):
    """The other side said what it may not say now."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello | Welcome | Offer | Grant | Landed | Abandoned | Verdict).decode


def say(connection: socket.socket, message: Message, deadline: Deadline) -> None:
    """Raises OSError (TimeoutError when the deadline is over)."""
    raw = _encode(message)
    if len(raw) > MAX_MESSAGE:
        raise ProtocolError(f"a message of {len(raw)} bytes: shorten the key")
    connection.settimeout(_patience(deadline))
    connection.sendall(_LENGTH.pack(len(raw)) + raw)


def hear(connection: socket.socket, deadline: Deadline) -> Message:
    """The next message. Raises OSError: TimeoutError, ProtocolError, or that the other side is gone."""
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if size > MAX_MESSAGE:
        raise ProtocolError(f"a message of {size} bytes was announced")
    try:
        message: Message = _decode(_exactly(connection, size, deadline))
    except msgspec.MsgspecError as error:
        raise ProtocolError(str(error)) from error
    return message


def _exactly(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(_patience(deadline))
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the other side has gone")
        data += piece
    return bytes(data)


def _patience(deadline: Deadline) -> float | None:
    remaining = deadline.remaining()
    if remaining == 0:
        raise TimeoutError("the deadline is over")
    return remaining
