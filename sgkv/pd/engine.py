"""The Transfer Engine of a process, and memory that it may read and write."""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os

from sgkv.backends.mooncake.forks import spare_children
from sgkv.backends.mooncake.immortal import keep_forever
from sgkv.backends.mooncake.library import LibraryMissingError, load
from sgkv.backends.mooncake.options import MooncakeOptions


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
        self._native = library.TransferEngine()
        keep_forever(self._native)
        if self._native.initialize(hostname, "P2PHANDSHAKE", "tcp", ""):
            raise RuntimeError(f"the Transfer Engine does not start at {hostname}")
        self._pid = os.getpid()
        self.session = f"{hostname}:{self._native.get_rpc_port()}"

    def write(self, session: str, source: int, target: int, size: int) -> bool:
        """Write to another engine; blocks for seconds where that hangs. False when not all arrived."""
        return not self._foreign and not self._native.transfer_sync_write(session, source, target, size)

    def register(self, pointer: int, size: int) -> bool:
        return not self._foreign and not self._native.register_memory(pointer, size)

    def unregister(self, pointer: int) -> bool:
        return not self._foreign and not self._native.unregister_memory(pointer)

    @property
    def _foreign(self) -> bool:
        """In a forked child, where the library's threads are missing."""
        return os.getpid() != self._pid


class Region:
    """Memory of our own that an engine knows."""

    def __init__(self, engine: Engine, size: int) -> None:
        """Raises RuntimeError when the engine refuses it."""
        self._engine = engine
        self._map = mmap.mmap(-1, size)
        self.view = memoryview(self._map)
        self.pointer = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if not engine.register(self.pointer, size):
            raise RuntimeError(f"the Transfer Engine does not register {size} bytes")

    def release(self, *, quiet: bool) -> None:
        """Take it from the engine, and keep it mapped for good unless all is `quiet`: nobody writes late."""
        if not self._engine.unregister(self.pointer) or not quiet:
            keep_forever(self._map)
