"""One connection of an engine to the daemon: a call at a time."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgkv import __version__
from sgkv.backends.base import Buffer
from sgkv.node import wire
from sgkv.node.access import peer_of
from sgkv.node.framing import Channel
from sgkv.node.memory import map_file, populate_later
from sgkv.node.wire import WireError

if TYPE_CHECKING:
    from sgkv.node.session import AttachedSession

_CROWDED = 256
"""Namespaces after which a connection is better replaced: weights were updated often."""
_DEATH_SECONDS = 2.0

R = TypeVar("R", bound=wire.Message)


class RefusedError(Exception):
    """The daemon says no, and why."""


class LeavingError(WireError):
    """The daemon says that it is shutting down."""


class Memory:
    """The arena of one start of a daemon, mapped when it is first used. Any thread."""

    def __init__(self, welcome: wire.Welcome, descriptor: int) -> None:
        """Takes over the descriptor."""
        self.instance = welcome.instance
        self._size = welcome.arena_bytes
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._view: Buffer | None = None

    @property
    def view(self) -> Buffer:
        """Raises OSError where it cannot be mapped, WireError once it was closed."""
        with self._lock:
            if self._view is None:
                if self._descriptor < 0:  # which mmap would take for memory of our own
                    raise WireError("the daemon was replaced")
                self._view = map_file(self._descriptor, self._size)
                populate_later(self._view)
            return self._view

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with its last view."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1


class SharedRegion:
    """Memory of this engine that a daemon may be handed."""

    def __init__(self, view: Buffer, address: int, descriptor: int) -> None:
        """Keeps a descriptor of its own."""
        self.view = view
        self.address = address
        self.descriptor = os.dup(descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


class Lane:
    """Of one thread at a time. Raises what `Channel` does, and RefusedError; only after that is it of use."""

    def __init__(self, path: Path, token: str, until: float) -> None:
        """Connect and say hello, until `until`. Whoever makes a lane takes over its `descriptor`."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._channel: Channel[wire.Reply] = Channel(sock, wire.Reply)
        self._numbers: dict[AttachedSession, int] = {}
        self._shared: set[int] = set()
        self._daemon: int | None = None
        self._unanswered = 0
        try:
            sock.settimeout(max(0.001, until - time.monotonic()))
            sock.connect(str(path))
            self._daemon = _process(sock)
            self._channel.send(wire.Hello(wire.VERSION, token, f"sgkv {__version__}"), until)
            self.welcome, self.descriptor = _welcomed(*self._channel.receive(until))
        except BaseException:
            self.close()
            raise

    @property
    def crowded(self) -> bool:
        return len(self._numbers) >= _CROWDED

    @property
    def fenced(self) -> bool:
        """Whether `fence` could end the daemon: only then may it be lent pages to write into."""
        if self._daemon is None:
            return False
        try:
            signal.pidfd_send_signal(self._daemon, 0)
        except OSError:
            return False
        return True

    @property
    def settled(self) -> bool:
        """Whether every request has been answered; else the lane is of no use to the next caller."""
        return not self._unanswered

    def ask(self, request: wire.Message, answer: type[R], until: float, descriptor: int | None = None) -> R:
        """Send a request and wait for its answer, which must be an `answer`."""
        self.post(request, until, descriptor)
        return self.hear(answer, until)

    def tell(self, message: wire.Message, until: float) -> None:
        """Send what has no answer."""
        self._channel.send(message, until)

    def post(self, request: wire.Message, until: float, descriptor: int | None = None) -> None:
        """Send a request whose answer is heard later."""
        self._channel.send(request, until, descriptor)
        self._unanswered += 1

    def hear(self, answer: type[R], until: float) -> R:
        """Wait for the answer to the oldest request that has none yet, which must be an `answer`."""
        reply, extra = self._channel.receive(until)
        self._unanswered -= 1
        if extra is not None:
            os.close(extra)
        if isinstance(reply, wire.Refused):
            raise LeavingError(reply.why) if reply.leaving else RefusedError(reply.why)
        if not isinstance(reply, answer):
            raise WireError(f"{type(reply).__name__} came where {answer.__name__} was due")
        return reply

    def number(self, session: AttachedSession, until: float) -> int:
        """What this connection calls a session; the daemon is told of it the first time."""
        number = self._numbers.get(session)
        if number is None:
            opening = wire.Open(session.namespace, session.layout, session.producer)
            number = self._numbers[session] = self.ask(opening, wire.Opened, until).session
        return number

    def share(self, regions: Mapping[int, SharedRegion], until: float) -> None:
        """Hand over what has not been on this connection."""
        for name in regions.keys() - self._shared:
            region = regions[name]
            message = wire.Share(region.address, len(region.view))
            self.ask(message, wire.Done, until, region.descriptor)
            self._shared.add(name)

    def fence(self) -> None:
        """End a daemon that was lent pages and does not say that it is done with them.

        They are about to belong to another request. A daemon that is stopped or starved would write into
        them when it goes on; one that is killed cannot.
        """
        if self._daemon is None:
            return
        try:
            signal.pidfd_send_signal(self._daemon, signal.SIGKILL)
        except ProcessLookupError:
            return
        waiting = select.poll()
        waiting.register(self._daemon, select.POLLIN)
        waiting.poll(_DEATH_SECONDS * 1000)

    def close(self) -> None:
        self._channel.close()
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            os.close(daemon)


def _welcomed(reply: wire.Reply, descriptor: int | None) -> tuple[wire.Welcome, int]:
    """The answer to Hello, and the descriptor of the arena."""
    if isinstance(reply, wire.Refused):
        raise RefusedError(reply.why)
    if not isinstance(reply, wire.Welcome) or descriptor is None:
        raise WireError("the daemon does not say welcome")
    return reply, descriptor


def _process(sock: socket.socket) -> int | None:
    """A descriptor of the daemon's process; None where it cannot be seen from here."""
    try:
        return os.pidfd_open(peer_of(sock).pid)
    except OSError:
        return None
