"""Real servers of the Redis protocol as processes, alone or as a cluster: Valkey, else Redis."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sgkv.backends.valkey.dialling import Dialler
from sgkv.backends.valkey.options import ValkeyOptions
from sgkv.testing.process import ProcessTree
from sgkv.testing.waiting import wait_until

_START_SECONDS = 30.0
_SLOTS = 16_384
_PROGRAMS = ("valkey-server", "redis-server")


def find_program() -> str:
    """Path of a server's program. Raises FileNotFoundError that names the Debian package."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise FileNotFoundError("there is no valkey-server or redis-server: apt-get install valkey-server")
    return found


class ValkeyServer:
    """``with ValkeyServer(folder) as server``: on loopback, at a free port, with nothing in it.

    It keeps its port when it is started again, and loses what it held.
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None, **options: Any) -> None:
        """`settings` are directives of its configuration; `options` are `ValkeyOptions` to reach it with."""
        self._folder = folder
        port = _free_port()
        self.options = ValkeyOptions(address=f"127.0.0.1:{port}", **options)
        directives = {
            "bind": "127.0.0.1",
            "tls-port" if self.options.tls else "port": str(port),
            "dir": str(folder),
            "save": "",
            "daemonize": "no",
            **({"port": "0"} if self.options.tls else {}),
            **(settings or {}),
        }
        self._settings = [word for name, value in directives.items() for word in (f"--{name}", value)]
        self._tree: ProcessTree | None = None

    def start(self) -> Self:
        """Returns when it answers. Raises FileNotFoundError, RuntimeError or TimeoutError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [find_program(), *self._settings]
        self._tree = ProcessTree(command, os.environ, self._folder / "server.log")
        self._tree.wait_for_line("Ready to accept connections", _START_SECONDS)
        return self

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nobody."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Idempotent."""
        if self._tree is not None:
            self._tree.kill()
            self._tree = None

    def say(self, *words: object) -> Any:
        """What it answers to a command. Raises ConnectionError."""
        with Dialler(self.options).control(self.options.address) as client:
            return client.execute_command(*words)

    @property
    def _pid(self) -> int:
        if self._tree is None:
            raise RuntimeError("the server is not running")
        return self._tree.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()


@contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Sequence[ValkeyServer]]:
    """So many primaries of one cluster, each with its share of the slots in one run, and no replicas."""
    with ExitStack() as stack:
        settings = {"cluster-enabled": "yes", "cluster-node-timeout": "2000"}
        servers = [
            stack.enter_context(ValkeyServer(folder / str(at), settings=settings)) for at in range(nodes)
        ]
        for at, server in enumerate(servers):
            first, last = at * _SLOTS // nodes, (at + 1) * _SLOTS // nodes - 1
            server.say("CLUSTER ADDSLOTSRANGE", first, last)
            server.say("CLUSTER SET-CONFIG-EPOCH", at + 1)
            host, port = servers[0].options.address.split(":")
            server.say("CLUSTER MEET", host, port)
        for server in servers:
            wait_until(lambda server=server: _joined(server, nodes), "the nodes to find each other", 30.0)  # type: ignore[misc]
            server.options = replace(server.options, cluster=True)
        yield servers


def _joined(server: ValkeyServer, nodes: int) -> bool:
    """Whether it sees all slots served and all nodes."""
    info = server.say("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == nodes)


def _free_port() -> int:
    """One that a cluster's bus port, 10,000 above, exists for."""
    while True:
        with socket.socket() as any_socket:
            any_socket.bind(("127.0.0.1", 0))
            port: int = any_socket.getsockname()[1]
        if port < 55_000:
            return port
