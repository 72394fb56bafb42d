"""Messages over a Unix socket: a length, then MessagePack; at most one descriptor beside the length.

A plain stream socket and not ZeroMQ: the same connection hands over descriptors, says who the peer is, and
ends when the peer does, however that happens. None of the three goes through ZeroMQ.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from sgkv.node.wire import MAX_MESSAGE, Message, WireError

_LENGTH = struct.Struct("<I")
_MAX_DESCRIPTORS = 4
_LOST = 1 << 16
"""Bytes of what nobody reads, at a time."""
_LEAST = 0.001
"""Seconds for one system call where no time is left: the answer may be there already."""

M = TypeVar("M")
_encoder = msgspec.msgpack.Encoder()


class ClosedError(WireError):
    """The peer has closed the connection, or is gone."""


class Channel(Generic[M]):
    """One end of a connection, which receives messages of the kinds in `M`. One thread at a time but for
    `hang_up` and `close`.

    Every method raises TimeoutError past its time, ClosedError when the peer is gone, WireError for
    what is no message and OSError for what the system does not do; after any of them the connection is
    of no more use.
    """

    def __init__(self, sock: socket.socket, kinds: Any) -> None:
        """`kinds` is the union that `M` stands for."""
        self._socket = sock
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kinds)

    def send(self, message: Message, until: float, descriptor: int | None = None) -> None:
        """`until` in monotonic seconds."""
        body = _encoder.encode(message)
        if len(body) > MAX_MESSAGE:
            raise WireError(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE}")
        data = memoryview(_LENGTH.pack(len(body)) + body)
        self._wait_until(until)
        if descriptor is not None:
            data = data[socket.send_fds(self._socket, [data], [descriptor]) :]
        self._socket.sendall(data)

    def receive(self, until: float | None, patience: float = 0.0) -> tuple[M, int | None]:
        """The next message, and the descriptor that came with it, which is the caller's to close.

        It is here by `until`; where that is None, `patience` seconds after the peer has begun it.
        """
        self._wait_until(until)
        first, descriptors, _, _ = socket.recv_fds(
            self._socket, _LENGTH.size, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        try:
            ends = time.monotonic() + patience if until is None else until
            head = first + self._exactly(_LENGTH.size - len(first), ends) if first else _ended()
            message = self._decode(self._exactly(_length(head), ends))
        except BaseException:
            _close_all(descriptors)
            raise
        _close_all(descriptors[1:])
        return message, descriptors[0] if descriptors else None

    def hang_up(self) -> None:
        """Hear no more: who waits for a message is woken, who is about to answer may."""
        with suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_RD)

    def await_end(self) -> None:
        """Say that no answer will come, and wait until the peer has let go; what it still says is lost."""
        with suppress(OSError):  # it has
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(None)
            while self._socket.recv(_LOST):
                pass

    def close(self) -> None:
        """Whoever waits on the connection is woken."""
        with suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _decode(self, body: bytearray) -> M:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise WireError(f"not a message of this protocol: {error}") from error

    def _exactly(self, size: int, until: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._wait_until(until)
            received = self._socket.recv_into(view)
            if not received:
                _ended()
            view = view[received:]
        return data

    def _wait_until(self, until: float | None) -> None:
        self._socket.settimeout(None if until is None else max(_LEAST, until - time.monotonic()))


def _length(head: bytes) -> int:
    (size,) = _LENGTH.unpack(head)
    if size > MAX_MESSAGE:
        raise WireError(f"a message of {size} bytes is over the limit of {MAX_MESSAGE}")
    return int(size)


def _ended() -> bytes:
    raise ClosedError("the other side has closed the connection")


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
