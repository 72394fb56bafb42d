"""What a connection can ask of the daemon, once it was let in, and what it holds meanwhile."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from sgkv.backends.base import Status as Stored
from sgkv.backends.cpu import Reservation
from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.node import wire
from sgkv.node.access import DeniedError, Grant, Peer
from sgkv.node.holdings import Holdings
from sgkv.node.memory import Region, pages_in
from sgkv.node.service import Service
from sgkv.node.wire import WireError
from sgkv.reasons import MissReason
from sgkv.store.lending import Lent
from sgkv.store.session import Session
from sgkv.store.span import Span

_LONGEST = 600.0
_MOST = 1024
"""Namespaces, and pieces of shared memory, of one connection."""
_HOLDING = wire.Borrow | wire.Reserve | wire.Publish
"""Requests that leave what is held as it is; any other gives it back."""
_ROOMLESS = {Stored.EXISTS: -1}


class Desk:
    """Of one connection, and its thread alone but for the properties.

    Handlers raise WireError for a message that makes no sense here, and DeniedError for what is not allowed.
    """

    def __init__(self, service: Service, peer: Peer, grant: Grant) -> None:
        self.grant = grant
        self.holdings = Holdings()
        self._service = service
        self._peer = peer
        self._sessions: list[Session] = []
        self._regions: list[Region] = []
        self._kept: list[object] = []
        """What keeps the regions mapped."""
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
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def shared_bytes(self) -> int:
        return sum(len(region.view) for region in self._regions)

    def settle(self, request: wire.Request) -> None:
        """Give back what does not outlast the coming of this request."""
        if isinstance(request, wire.Return):
            self.holdings.give_back_oldest()
        elif not isinstance(request, _HOLDING):
            self.holdings.give_back()

    def answer(self, request: wire.Request) -> wire.Message:
        handler = self._answers.get(type(request))
        if handler is None:
            raise WireError(f"{type(request).__name__} has no place here")
        return handler(request)

    def _open(self, request: wire.Open) -> wire.Message:
        self.grant.require(request.namespace.tenant)
        if len(self._sessions) >= _MOST:
            raise DeniedError(f"a connection has at most {_MOST} namespaces")
        self._sessions.append(self._service.session(request.namespace, request.layout, request.producer))
        return wire.Opened(len(self._sessions) - 1)

    def share(self, request: wire.Share, descriptor: int | None) -> wire.Message:
        if descriptor is None:
            raise WireError("Share comes with a descriptor")
        if len(self._regions) >= _MOST:
            raise WireError(f"a connection shares at most {_MOST} pieces of memory")
        trusted = self._peer.uid == os.geteuid()
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
        self.holdings.require_place()
        session, span, deadline = self._asked(request)
        lent = Lent([None] * len(span.hashes), [MissReason.TIMEOUT] * len(span.hashes), {})
        with self._service.turns.turn(_size(session, span.hashes), deadline) as mine:
            if mine:
                lent = session.lend(span, deadline)
        self.holdings.add(lent)
        self._service.trim(session)
        places = [-1 if lease is None else lease.offset for lease in lent.leases]
        return wire.Lent(_missed(lent.reasons), lent.served_by, wire.packed_places(places))

    def _reserve(self, request: wire.Reserve) -> wire.Message:
        self.holdings.require_place()
        session, span, _ = self._asked(request)
        rooms = session.reserve(span) if self._service.has_room(session, span) else session.no_rooms(span)
        self.holdings.add(rooms)
        places = [
            room.offset if isinstance(room, Reservation) else _ROOMLESS.get(room, -2) for room in rooms.places
        ]
        return wire.Rooms(wire.packed_places(places))

    def _publish(self, request: wire.Publish) -> wire.Message:
        rooms = self.holdings.take_rooms()
        if _deadline(request.until).expired:
            rooms.abandon()
            return _flags([False] * len(rooms.places))
        return _flags(rooms.publish())

    def _fill(self, request: wire.Fill) -> wire.Message:
        session, span, deadline = self._asked(request)
        pages = self._pages(session, span.hashes, request.buffers)
        self._service.trim(session)  # of what was loaded behind earlier ones
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

    def _asked(self, request: wire.Asked) -> tuple[Session, Span, Deadline]:
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
