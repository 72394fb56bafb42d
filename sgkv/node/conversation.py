"""One connection of a daemon: an engine asks, the daemon answers, one message after the other."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable

from sgkv.boundary import contained
from sgkv.node import wire
from sgkv.node.access import DeniedError, Grant, Peer
from sgkv.node.desk import Desk
from sgkv.node.framing import Channel, ClosedError
from sgkv.node.service import Service
from sgkv.node.wire import WireError

logger = logging.getLogger("sgkv")

_PATIENCE = 5.0
"""Seconds for a peer to say hello, to finish a message it has begun, and to take an answer."""


class Conversation:
    """Runs in a thread of its own; what it holds for the peer ends with it."""

    def __init__(self, sock: socket.socket, peer: Peer, service: Service) -> None:
        self.peer = peer
        self.software = ""
        self._channel: Channel[wire.Request] = Channel(sock, wire.Request)
        self._service = service
        self._desk = Desk(service, peer, Grant(frozenset()))

    @property
    def held_blocks(self) -> int:
        return self._desk.holdings.blocks

    @property
    def sessions(self) -> int:
        return self._desk.sessions

    @property
    def shared_bytes(self) -> int:
        return self._desk.shared_bytes

    @property
    def tenants(self) -> frozenset[str] | None:
        """Whom the peer speaks for; None is everybody."""
        return self._desk.grant.tenants

    def run(self, status: Callable[[Grant], bytes]) -> None:
        """Until the peer is gone, or says what nobody may say. `status` answers `wire.Status`, as JSON."""
        try:
            if self._greet():
                while self._serve_next(status):
                    pass
        except ClosedError:
            pass
        except (WireError, OSError) as error:
            logger.warning("sgkv: the connection of process %d is ended: %s", self.peer.pid, error)
            self._service.store.counters.add("broken_connections")
            if self._desk.holdings.has_rooms:
                self._channel.await_end()  # the peer may be writing there
        finally:
            # In this order: who cannot say `Return` any more does not count what it read.
            self._channel.hang_up()
            if not self._service.leaving:  # else it is us who ended this, and the peer may be writing still
                self._desk.holdings.give_back()
            self._channel.close()

    def hang_up(self) -> None:
        """From another thread: what is being answered is the last."""
        self._channel.hang_up()

    def end(self) -> None:
        """From another thread: the peer gets no further answer."""
        self._channel.close()

    def _greet(self) -> bool:
        """Whether the peer may stay."""
        hello, descriptor = self._channel.receive(time.monotonic() + _PATIENCE)
        _close(descriptor)
        service = self._service
        if not isinstance(hello, wire.Hello):
            raise WireError("a connection begins with Hello")
        if hello.version != wire.VERSION:
            why = (
                f"the engine speaks version {hello.version}, the daemon {wire.VERSION}: update the older sgkv"
            )
            return self._refuse(why)
        try:
            self._desk.grant = service.rules.access.admit(self.peer, hello.token)
        except DeniedError as error:
            return self._refuse(str(error))
        self.software = hello.software
        welcome = wire.Welcome(service.instance, len(service.arena.memory), service.store.chunk_tokens)
        self._say(welcome, service.descriptor)
        return True

    def _refuse(self, why: str) -> bool:
        logger.warning("sgkv: process %d of user %d is refused: %s", self.peer.pid, self.peer.uid, why)
        self._service.store.counters.add("refused_connections")
        self._say(wire.Refused(why))
        return False

    def _serve_next(self, status: Callable[[Grant], bytes]) -> bool:
        request, descriptor = self._channel.receive(None, _PATIENCE)
        try:
            self._desk.settle(request)
            if self._service.leaving:
                self._say(wire.Refused("the daemon is shutting down", leaving=True))
                return False
            if isinstance(request, wire.Share):
                self._say(self._desk.share(request, descriptor))
            elif isinstance(request, wire.Status):
                self._say(wire.Report(status(self._desk.grant)))
            elif not isinstance(request, wire.Return):
                self._say(self._answer(request))
        finally:
            _close(descriptor)
        return True

    def _answer(self, request: wire.Request) -> wire.Message:
        """The one place where an error of the daemon's own becomes an answer."""
        broken: WireError | None = None
        with contained("a request of an engine", self._service.store.counters):
            try:
                return self._desk.answer(request)
            except DeniedError as error:
                return wire.Refused(str(error))
            except WireError as error:
                broken = error
        if broken is not None:
            raise broken
        return wire.Refused("an error of the daemon's own: see its log")

    def _say(self, message: wire.Message, descriptor: int | None = None) -> None:
        self._channel.send(message, time.monotonic() + _PATIENCE, descriptor)


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
