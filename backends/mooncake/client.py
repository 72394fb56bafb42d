"""The state of one connection: whether the library may be called now, and by whom."""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass

from sgkv.backends.base import Buffer, Status
from sgkv.backends.gate import Gate
from sgkv.backends.mooncake.forks import spare_children
from sgkv.backends.mooncake.immortal import keep_forever
from sgkv.backends.mooncake.library import NativeStore, load, placement, set_up
from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.backends.mooncake.reachable import why_not_reachable
from sgkv.backends.mooncake.regions import Region, Regions
from sgkv.backends.workers import WorkerPool, in_background

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class State(enum.Enum):
    """Where a connection stands. Only READY calls the library."""

    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"
    """Until the next attempt, which a call starts when the pause is over."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Connection:
    """A library object that was set up, with what its calls need."""

    store: NativeStore
    placement: object


class Client:
    """Connects once, counts who is inside the library, and lets nobody in before or after.

    Setting up twice would silently replace the first segment, a call before it or after `close` ends
    the process, and a forked child that calls hangs: none of them is possible through `using`.
    """

    def __init__(self, options: MooncakeOptions, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises LibraryMissingError. `clock` gives monotonic seconds, for the pauses between attempts."""
        self._options = options
        self._library = load(options)
        spare_children()
        self._clock = clock
        self._pid = os.getpid()
        self._gate = Gate()
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._state = State.FAILED
        self._connection: Connection | None = None
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._regions = Regions()
        self._connector = WorkerPool(1, "sgkv-mooncake-connect", backlog=0)

    @property
    def state(self) -> State:
        return State.CLOSED if self.foreign else self._state

    @property
    def foreign(self) -> bool:
        """Whether this is a forked copy: the library's threads did not come along."""
        return os.getpid() != self._pid

    @property
    def why_not(self) -> Status:
        """What calls answer while the library may not be called."""
        return Status.CLOSED if self.state is State.CLOSED else Status.ERROR

    def connect(self, timeout: float) -> bool:
        """Begin to connect and wait for up to `timeout` seconds; whether the library may be called."""
        attempt = self._begin()
        if attempt is not None:
            wait([attempt], timeout)
        return self.state is State.READY

    @contextmanager
    def using(self) -> Iterator[Connection | None]:
        """Hold the connection open for one native call; None where none may be made now."""
        if self.foreign:
            yield None
            return
        with self._gate.passing() as admitted:
            connection = self._connection if admitted else None
            if admitted and connection is None:
                self._begin()
            yield connection

    def register(self, view: Buffer) -> bool:
        """Make memory known to the transport, now or when connected; it stays mapped until `close`."""
        if self.state is State.CLOSED or self._options.standalone:
            return False
        with self._registering:
            region = self._regions.add(view)
            if region is None:
                return False
            with self.using() as connection:
                return connection is None or self._enter(connection.store, region)

    def locate(self, buffer: Buffer) -> int | None:
        """The address of a buffer in registered memory, else None."""
        return self._regions.locate(buffer)

    @property
    def registered_bytes(self) -> int:
        return self._regions.size

    def close(self) -> None:
        """Wait a few seconds for calls under way, then end the connection. Idempotent.

        Where a native call still hangs the library is left alone: closing it under the call would end
        the process, and so would freeing it.
        """
        if self.foreign:
            return
        ends = time.monotonic() + _DRAIN_SECONDS
        drained = self._gate.close(_DRAIN_SECONDS)
        connected = self._connector.close(max(0.0, ends - time.monotonic()))
        with self._lock:
            already, self._state = self._state is State.CLOSED, State.CLOSED
            connection, self._connection = self._connection, None
        if connection is None or already:
            return
        if drained and connected:
            connection.store.close()
        else:
            keep_forever(connection.store, self._regions)
            log.warning("mooncake: a call into the library hangs; it is left open")

    def _begin(self) -> Future[None] | None:
        """Start an attempt unless one is under way, done, or not due."""
        with self._lock:
            due = self._state is State.FAILED and self._clock() >= self._retry_at
            if not due or (attempt := in_background(self._connector, self._attempt)) is None:
                return None
            self._state = State.CONNECTING
            return attempt

    def _attempt(self) -> None:
        connection = None
        try:
            connection = self._open()
        finally:
            with self._registering:
                self._conclude(connection)

    def _conclude(self, connection: Connection | None) -> None:
        """Open the door, or say when to try again; end a connection that came after `close`."""
        if connection is not None:
            self._regions.each(lambda region: void(self._enter(connection.store, region)))
        abandoned: Connection | None = None
        with self._lock:
            if self._state is State.CLOSED:
                abandoned = connection
            elif connection is None:
                self._state = State.FAILED
                self._retry_at = self._clock() + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            else:
                self._state, self._connection = State.READY, connection
        if abandoned is not None:
            abandoned.store.close()

    def _open(self) -> Connection | None:
        reason = why_not_reachable(self._options)
        if reason is not None:
            log.warning("mooncake: not connected: %s", reason)
            return None
        store: NativeStore = self._library.MooncakeDistributedStore()
        code = set_up(store, self._options)
        if code:
            log.warning("mooncake: the pool at %s did not answer (%d)", self._options.master, code)
            store.close()
            return None
        keep_forever(store)
        return Connection(store, placement(self._library, self._options))

    def _enter(self, store: NativeStore, region: Region) -> bool:
        if store.register_buffer(region.start, region.stop - region.start) == 0:
            return True
        self._regions.drop(region)
        log.warning("mooncake: %d bytes could not be registered", region.stop - region.start)
        return False


def void(_: object) -> None:
    """Discard a result where a callable must have none."""
