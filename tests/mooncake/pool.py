"""A pool for tests, and backends on it."""

import itertools
import socket
from pathlib import Path

from sgkv.backends.mooncake import MooncakeBackend, MooncakeOptions
from sgkv.testing.mooncake import MooncakeMaster, StorageNode

MIB = 1 << 20
NODE_BYTES = 256 * MIB


def free_port() -> int:
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        return any_socket.getsockname()[1]


class Pool:
    """A master and the nodes that tests start; `close` ends what is left."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._numbers = itertools.count()
        self._nodes: list[StorageNode] = []
        self._backends: list[MooncakeBackend] = []
        self.master: MooncakeMaster

    def start(self, *, node_bytes: int = NODE_BYTES, **options: object) -> "Pool":
        """A master, and a node unless that has no bytes."""
        self.start_master(**options)
        if node_bytes:
            self.add_node(node_bytes)
        return self

    def start_master(self, **options: object) -> MooncakeMaster:
        self.master = MooncakeMaster(self.folder, port=free_port(), admin_port=free_port(), **options)
        return self.master.start()

    def add_node(self, size: int = NODE_BYTES, **options: object) -> StorageNode:
        folder = self.folder / f"node{next(self._numbers)}"
        node = StorageNode(folder, self.master.address, size, **options)
        self._nodes.append(node)
        return node.start()

    @property
    def node(self) -> StorageNode:
        """The first one."""
        return self._nodes[0]

    def options(self, **changes: object) -> MooncakeOptions:
        given = {"master": self.master.address, "admin": self.master.admin.url, "connect_wait": 20.0}
        return MooncakeOptions(**{**given, **changes})

    def open(self, **changes: object) -> MooncakeBackend:
        """A backend on this pool, closed with it."""
        backend = MooncakeBackend(self.options(**changes))
        self._backends.append(backend)
        return backend

    def close(self):
        for backend in self._backends:
            backend.close()
        for node in self._nodes:
            node.kill()
        if hasattr(self, "master"):
            self.master.kill()
