"""One connection of a daemon: an engine asks, the daemon answers, one message after the other."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from sgkv.backends.base import Status as Stored
from sgkv.backends.cpu import Reservation
from sgkv.backends.deadline import Deadline
from sgkv.boundary import contained
from sgkv.chunk.blob import Page
from sgkv.node import wire
from sgkv.node.access import DeniedError, Grant, Peer
from sgkv.node.framing import Channel, ClosedError
from sgkv.node.holdings import Holdings
from sgkv.node.memory import Region, pages_in
from sgkv.node.service import Service
from sgkv.node.wire import WireError
from sgkv.reasons import MissReason
from sgkv.store.lending import Lent
from sgkv.store.session import Session

logger = logging.getLogger("sgkv")

_PATIENCE = 5.0
"""Seconds for a peer to say hello, to finish a message it has begun, and to take an answer."""
_LONGEST = 600.0
_MOST = 1024
"""Namespaces, and pieces of shared memory, of one connection."""
_HOLDING = wire.Borrow | wire.Reserve | wire.Publish
"""Requests that leave what is held as it is; any other gives it back."""
_ROOMLESS = {Stored.EXISTS: -1}


class Conversation:
    """Runs in a thread of its own; what it holds for the peer ends with it."""

    def __init__(self, sock: socket.socket, peer: Peer, service: Service) -> None:
        self.peer = peer
        self.software = ""
        self._channel: Channel[wire.Request] = Channel(sock, wire.Request)
        self._service = service
        self._grant = Grant(frozenset())
        self._sessions: list[Session] = []
        self._regions: list[Region] = []
        self._kept: list[object] = []
        """What keeps the regions mapped."""
        self._holdings = Holdings()
        self._answers: dict[type, Callable[[Any], wire.Message]] = {
            wire.Open: self._open,
            wire.Lookup: self._lookup,
            wire.Contains: self._contains,
            wire.Borrow: self._borrow,
            wire.Reserve: self._reserve,
            wire.Publish: self._publish,
            wire.Fill: self._fill,
            wire.Keep: self._keep,
            wire.Pin: self._pin,
            wire.Clear: self._clear,
            wire.Flush: self._flush,
        }

    @property
    def held_blocks(self) -> int:
        return self._holdings.blocks

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def shared_bytes(self) -> int:
        return sum(len(region.view) for region in self._regions)

    @property
    def tenants(self) -> frozenset[str] | None:
        """Whom the peer speaks for; None is everybody."""
        return self._grant.tenants

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
        finally:
            self._holdings.give_back()
            self._channel.close()

    def hang_up(self) -> None:
        """From another thread: what is being answered is the last."""
        self._channel.hang_up()

    def end(self) -> None:
        """From another thread: the peer gets no further answer."""
        self._channel.close()

    def _greet(self) -> bool:
        """Whether the peer may stay."""
        hello, descriptor = self._channel.receive(time.monotonic() + _PATIENCE, _PATIENCE)
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
            self._grant = service.rules.access.admit(self.peer, hello.token)
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
            if isinstance(request, wire.Return):
                self._holdings.give_back_oldest()
            elif not isinstance(request, _HOLDING):
                self._holdings.give_back()
            if self._service.leaving:
                self._say(wire.Refused("the daemon is shutting down", leaving=True))
                return False
            if isinstance(request, wire.Share):
                self._say(self._share(request, descriptor))
            elif isinstance(request, wire.Status):
                self._say(wire.Report(status(self._grant)))
            elif not isinstance(request, wire.Return):
                self._say(self._answer(request))
        finally:
            _close(descriptor)
        return True

    def _answer(self, request: wire.Request) -> wire.Message:
        handler = self._answers.get(type(request))
        if handler is None:
            raise WireError(f"{type(request).__name__} has no place here")
        broken: WireError | None = None
        with contained("a request of an engine", self._service.store.counters):
            try:
                return handler(request)
            except DeniedError as error:
                return wire.Refused(str(error))
            except WireError as error:
                broken = error
        if broken is not None:
            raise broken
        self._holdings.give_back()
        return wire.Refused("an error of the daemon's own: see its log")

    def _say(self, message: wire.Message, descriptor: int | None = None) -> None:
        self._channel.send(message, time.monotonic() + _PATIENCE, descriptor)

    # What can be asked. Each raises WireError for a message that makes no sense.

    def _open(self, request: wire.Open) -> wire.Message:
        self._grant.require(request.namespace.tenant)
        if len(self._sessions) >= _MOST:
            raise DeniedError(f"a connection has at most {_MOST} namespaces")
        self._sessions.append(self._service.session(request.namespace, request.layout, request.producer))
        return wire.Opened(len(self._sessions) - 1)

    def _share(self, request: wire.Share, descriptor: int | None) -> wire.Message:
        if descriptor is None:
            raise WireError("Share comes with a descriptor")
        if len(self._regions) >= _MOST:
            raise WireError(f"a connection shares at most {_MOST} pieces of memory")
        trusted = self.peer.uid == os.geteuid()
        region, keep = self._service.region(descriptor, request.address, request.size, trusted=trusted)
        self._regions.append(region)
        self._kept.append(keep)
        return wire.Done()

    def _lookup(self, request: wire.Lookup) -> wire.Message:
        span = request.span()
        found = self._session(request.session).lookup(span, _deadline(request.until))
        self._service.store.counters.lookup(len(span.hashes), found.pages, found.reason)
        return wire.Found(found.pages, found.reason.value if found.reason else None)

    def _contains(self, request: wire.Contains) -> wire.Message:
        session = self._session(request.session)
        return _flags(session.contains(request.span(), _deadline(request.until)))

    def _borrow(self, request: wire.Borrow) -> wire.Message:
        self._holdings.require_place()
        session, span, deadline = self._asked(request)
        lent = Lent([None] * len(span.hashes), [MissReason.TIMEOUT] * len(span.hashes), {})
        with self._service.turns.turn(_size(session, span.hashes), deadline) as mine:
            if mine:
                lent = session.lend(span, deadline)
        self._holdings.add(lent)
        places = [-1 if lease is None else lease.offset for lease in lent.leases]
        return wire.Lent(_missed(lent.reasons), lent.served_by, wire.packed_places(places))

    def _reserve(self, request: wire.Reserve) -> wire.Message:
        self._holdings.require_place()
        session, span, _ = self._asked(request)
        rooms = session.reserve(span) if self._service.has_room(session, span) else session.no_rooms(span)
        self._holdings.add(rooms)
        places = [
            room.offset if isinstance(room, Reservation) else _ROOMLESS.get(room, -2) for room in rooms.places
        ]
        return wire.Rooms(wire.packed_places(places))

    def _publish(self, request: wire.Publish) -> wire.Message:
        rooms = self._holdings.take_rooms()
        if _deadline(request.until).expired:
            rooms.abandon()
            return _flags([False] * len(rooms.places))
        return _flags(rooms.publish())

    def _fill(self, request: wire.Fill) -> wire.Message:
        session, span, deadline = self._asked(request)
        pages = self._pages(session, span.hashes, request.buffers)
        with self._service.turns.turn(_size(session, span.hashes), deadline) as mine:
            if not mine:
                return wire.Outcome(_missed([MissReason.TIMEOUT] * len(pages)), {})
            reading = session.read(span, pages, deadline)
        return wire.Outcome(_missed(reading.reasons), reading.served_by)

    def _keep(self, request: wire.Keep) -> wire.Message:
        session, span, deadline = self._asked(request)
        pages = self._pages(session, span.hashes, request.buffers)
        with self._service.turns.turn(_size(session, span.hashes), deadline) as mine:
            if not (mine and self._service.has_room(session, span)):
                return _flags([False] * len(pages))
            return _flags(session.set(span, pages, deadline))

    def _pin(self, request: wire.Pin) -> wire.Message:
        return _flags(self._session(request.session).pin(request.span(), request.pinned))

    def _clear(self, request: wire.Clear) -> wire.Message:
        self._session(request.session).clear()
        return wire.Done()

    def _flush(self, request: wire.Flush) -> wire.Message:
        return wire.Done(self._service.store.flush(min(max(0.0, request.timeout), _LONGEST)))

    def _asked(self, request: wire.Asked) -> tuple[Session, Any, Deadline]:
        return self._session(request.session), request.span(), _deadline(request.until)

    def _session(self, number: int) -> Session:
        if not 0 <= number < len(self._sessions):
            raise WireError(f"there is no session {number}")
        return self._sessions[number]

    def _pages(self, session: Session, hashes: Sequence[str], buffers: bytes) -> list[Page]:
        pages = pages_in(self._regions, wire.unpacked_pairs(buffers), len(hashes))
        if any(sum(map(len, page)) != session.layout.page_bytes for page in pages):
            raise WireError(f"a page is not of {session.layout.page_bytes} bytes")
        return pages


def _deadline(until: float) -> Deadline:
    if math.isnan(until):
        raise WireError("no time is given")
    return Deadline(max(0.0, min(until - time.monotonic(), _LONGEST)))


def _size(session: Session, hashes: Sequence[str]) -> int:
    return len(hashes) * session.layout.page_bytes


def _flags(flags: Sequence[bool]) -> wire.Message:
    return wire.Flags(bytes(flags))


def _missed(reasons: Sequence[MissReason | None]) -> dict[str, list[int]]:
    missed: dict[str, list[int]] = {}
    for page, reason in enumerate(reasons):
        if reason is not None:
            missed.setdefault(reason.value, []).append(page)
    return missed


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
