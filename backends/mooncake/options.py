"""What a connection to a Mooncake pool is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STANDALONE_BUFFER = 16 << 20
"""Bytes the library asks for beside the memory pool that is shared with a standalone client."""


@dataclass(frozen=True, slots=True)
class MooncakeOptions:
    """Sizes in bytes, times in seconds."""

    master: str = "127.0.0.1:50051"
    """``HOST:PORT`` of the master's RPC."""
    admin: str = ""
    """``http://HOST:PORT`` of the master's metrics server; empty is port 9003 of the master's host."""
    hostname: str = "127.0.0.1"
    """Under which the other machines reach this one."""
    metadata: str = "P2PHANDSHAKE"
    protocol: Literal["tcp", "rdma"] = "tcp"
    devices: str = ""
    """RDMA devices, comma-separated; empty lets the library choose."""
    segment_bytes: int = 0
    """Memory that this process gives to the pool. 0 leaves that to storage nodes: what an engine holds
    for others is gone when it ends."""
    standalone: str = ""
    """``HOST:PORT`` of a ``mooncake_client`` on this machine that does the work in a process of its own."""
    staging_bytes: int = 64 << 20
    """Memory of ours that is registered with the transport, and that every read passes through."""
    io_threads: int = 4
    """Native calls under way at once, for reads and for writes each."""
    replicas: int = 1
    pin: Literal["none", "soft", "hard"] = "none"
    """What we write resists the pool's eviction: soft as long as there is other prey, hard always."""
    preferred_segment: str = ""
    """Segment name of the node that should hold what we write: `HOST:PORT`, as `sgkv doctor` lists it."""
    tenant: str = "default"
    """Isolates only where the master runs with multi-tenancy (`sgkv doctor mooncake` looks)."""
    ssd_path: str = ""
    """Folder to which this process's segment is offloaded; best effort, by the library."""
    rpc_timeout: float = 2.0
    """After which the library gives up on a master that does not answer."""
    transfer_timeout: float = 3.0
    """After which the library gives up on one transfer from or to a node that does not move."""
    connect_wait: float = 10.0
    """How long opening waits for the pool; later the connection is made in the background."""

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot work together."""
        for address in filter(None, (self.master, self.standalone)):
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal():
                raise ValueError(f"{address!r} is not HOST:PORT")
        if self.staging_bytes < MIN_STAGING:
            raise ValueError(f"staging_bytes must be at least {MIN_STAGING}, got {self.staging_bytes}")
        if self.replicas < 1:
            raise ValueError(f"replicas must be at least 1, got {self.replicas}")
        if self.ssd_path and not self.segment_bytes:
            raise ValueError("ssd_path offloads this process's segment: give it one with segment_bytes")
        if self.standalone and self.segment_bytes:
            raise ValueError("a standalone client has the segment: leave segment_bytes at 0")

    @property
    def admin_url(self) -> str:
        return self.admin or f"http://{self.master.rpartition(':')[0]}:9003"


MIN_STAGING = 16 << 20
