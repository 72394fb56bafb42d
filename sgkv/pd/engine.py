"""The Transfer Engine of a process, and memory that it may read and write."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from typing import Any

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import address_of
from sgkv.backends.mooncake.forks import spare_children
from sgkv.backends.mooncake.immortal import keep_forever
from sgkv.backends.mooncake.library import LibraryMissingError, load
from sgkv.backends.mooncake.memory import forget, mapped
from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.backends.mooncake.regions import Regions
from sgkv.backends.mooncake.runs import Run

_PENDING, _DONE = 0, 1
_SHORTEST_PAUSE = 20e-6
_MOST_SECONDS = 10.0
"""The library gives a transfer up itself, after `MooncakeOptions.transfer_timeout`."""


class Engine:
    """One Transfer Engine over TCP, for any number of senders and receivers. Thread-safe.

    It lives as long as the process: the library has no safe way to end it next to calls under way. It
    listens on all interfaces, whatever `hostname` others are told.
    """

    def __init__(self, hostname: str = "127.0.0.1") -> None:
        """Raises LibraryMissingError, or RuntimeError when the engine does not start."""
        load(MooncakeOptions(hostname=hostname))
        try:
            library = importlib.import_module("mooncake.engine")
        except ImportError as error:
            raise LibraryMissingError(f"this Mooncake has no Transfer Engine: {error}") from error
        spare_children()
        self.native: Any = library.TransferEngine()
        """The library's own object; its calls know nothing of forks, and waiting ones spin."""
        keep_forever(self.native)
        if self.native.initialize(hostname, "P2PHANDSHAKE", "tcp", ""):
            raise RuntimeError(f"the Transfer Engine does not start at {hostname}")
        self._pid = os.getpid()
        self._regions = Regions()
        self.session = f"{hostname}:{self.native.get_rpc_port()}"

    def write(self, session: str, runs: Sequence[Run], target: int) -> bool:
        """Write a blob to an address of another engine; blocks for seconds where that hangs.

        False when not all arrived; what is under way may then still be read here, and land there.
        """
        if self._foreign:
            return False
        begun = [
            self.native.transfer_submit_write(session, run.address, target + run.offset, run.size)
            for run in runs
        ]
        ends = time.monotonic() + _MOST_SECONDS
        return all(batch > 0 and self._arrived(batch, ends) for batch in begun)

    def _arrived(self, batch: int, ends: float) -> bool:
        """Wait for one transfer, as gently as the library lets us.

        It has no event to wait for. Its own calls that wait spin: seen, 0.3 ms of a core for 1 MiB, which
        the sockets and the other side's checks need. So its state is looked at after a sixteenth of the time
        that the transfer took up to then. A state that is not pending frees the transfer; never look again.
        """
        begin = time.monotonic()
        while (state := self.native.transfer_check_status(batch)) == _PENDING:
            now = time.monotonic()
            if now > ends:
                return False
            time.sleep(max(_SHORTEST_PAUSE, (now - begin) / 16))
        return bool(state == _DONE)

    def register_memory(self, view: Buffer) -> bool:
        """Let chunks be sent straight from this memory, which stays mapped until it is unregistered.

        False where the engine refuses it, or where it overlaps what it knows.
        """
        if self._foreign or (region := self._regions.add(view)) is None:
            return False
        if not self.native.register_memory(region.start, len(view)):
            return True
        self._regions.drop(region)
        return False

    def unregister_memory(self, view: Buffer) -> bool:
        """Of a view that was registered. From then on writes into it are refused, unless they had begun."""
        if self._foreign or (region := self._regions.starting_at(address_of(view))) is None:
            return False
        gone = not self.native.unregister_memory(region.start)
        if gone:
            self._regions.drop(region)
        return gone

    def locate(self, buffer: Buffer) -> int | None:
        """The address of a buffer in registered memory, else None."""
        return self._regions.locate(buffer)

    @property
    def _foreign(self) -> bool:
        """In a forked child, where the library's threads are missing."""
        return os.getpid() != self._pid


class Region:
    """Memory of our own that an engine knows."""

    def __init__(self, engine: Engine, size: int) -> None:
        """Raises RuntimeError when the engine refuses it."""
        self._engine = engine
        self.view = mapped(size)
        self.pointer = address_of(self.view)
        if not engine.register_memory(self.view):
            raise RuntimeError(f"the Transfer Engine does not register {size} bytes")

    def release(self, *, quiet: bool) -> None:
        """Take it from the engine. Unless all is `quiet`, a write may come late: it stays mapped for good."""
        if not self._engine.unregister_memory(self.view) or not quiet:
            forget(self.view)
