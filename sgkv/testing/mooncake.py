"""A Mooncake pool of one machine: a real master and storage nodes, as context managers."""

from __future__ import annotations

import os
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sgkv.backends.mooncake.admin import Admin
from sgkv.backends.mooncake.library import load, settings
from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.testing.process import ProcessTree
from sgkv.testing.waiting import wait_until

_START_SECONDS = 30.0
RPC_PORT, ADMIN_PORT = 50051, 9003


class _Process(ABC):
    """One process of a pool, which can be stopped and let go on like any other."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._tree: ProcessTree | None = None

    @property
    def tree(self) -> ProcessTree:
        """Raises RuntimeError when it was not started."""
        if self._tree is None:
            raise RuntimeError(f"{self._log.stem} is not running")
        return self._tree

    @abstractmethod
    def start(self) -> Self:
        """Returns when it does what it is there for. Raises RuntimeError, or TimeoutError."""

    def restart(self) -> None:
        """SIGKILL and start anew, with the same settings and with nothing in it."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nobody."""
        os.kill(self.tree.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.tree.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Idempotent."""
        if self._tree is not None:
            self._tree.kill()
            self._tree = None

    def stop(self) -> None:
        """Let it end in order."""
        if self._tree is not None:
            with suppress(ProcessLookupError):
                self.resume()
            self._tree.stop(10.0)
            self._tree = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()


class MooncakeMaster(_Process):
    """``mooncake_master``, bound to one address."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = RPC_PORT,
        admin_port: int = ADMIN_PORT,
        client_ttl: int = 5,
        lease_ms: int = 2000,
        flags: Sequence[str] = (),
    ) -> None:
        """`client_ttl` in seconds, after which a dead node is dropped; `lease_ms` protects what was read."""
        super().__init__(folder / "master.log")
        self.address = f"{host}:{port}"
        self.admin = Admin(f"http://{host}:{admin_port}")
        self._flags = [
            f"-rpc_address={host}",
            f"-rpc_port={port}",
            f"-metrics_host={host}",
            f"-metrics_port={admin_port}",
            f"-http_metadata_server_host={host}",
            "-rpc_thread_num=2",
            f"-client_ttl={client_ttl}",
            f"-default_kv_lease_ttl={lease_ms}",
            "-logtostderr",
            *flags,
        ]

    def start(self) -> Self:
        """Returns when it serves. Raises RuntimeError, TimeoutError, or LibraryMissingError."""
        _require_free(self.address)
        library = Path(load(MooncakeOptions()).__file__).parent
        self._tree = ProcessTree([str(library / "mooncake_master"), *self._flags], os.environ, self._log)
        wait_until(self._ready, "the master to serve", _START_SECONDS)
        return self

    def _ready(self) -> bool:
        try:
            return self.admin.ready()
        except OSError:
            return False


def _require_free(address: str) -> None:
    """The master itself would share a port with another one, and each client get either of them."""
    host, _, port = address.rpartition(":")
    with socket.socket() as any_socket:
        any_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            any_socket.bind((host, int(port)))
        except OSError as error:
            raise RuntimeError(f"{address}: {error}") from error


class StorageNode(_Process):
    """A process that gives `size` bytes to the pool of `master`."""

    def __init__(
        self, folder: Path, master: str, size: int, *, hostname: str = "127.0.0.1", ssd: Path | None = None
    ) -> None:
        super().__init__(folder / "node.log")
        self._command = [sys.executable, "-m", "sgkv.backends.mooncake.node"]
        self._command += ["--master", master, "--bytes", str(size), "--hostname", hostname]
        if ssd is not None:
            self._command += ["--ssd", str(ssd)]

    def start(self) -> Self:
        """Returns when its memory is in the pool. Raises RuntimeError."""
        env = {**settings(MooncakeOptions()), **os.environ}
        self._tree = ProcessTree(self._command, env, self._log)
        self._tree.wait_for_line("serving", _START_SECONDS)
        return self
