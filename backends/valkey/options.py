"""What it takes to reach a server, and how hard to try."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ValkeyOptions:
    """Durations in seconds."""

    address: str = "127.0.0.1:6379"
    """``HOST:PORT`` of the server, or of any node of a cluster."""
    cluster: bool = False
    """Keys are spread over nodes by hash slots ("Cluster specification", valkey.io)."""
    database: int = 0
    """A cluster has number 0 only."""
    prefix: str = "sgkv/"
    """Before every key."""
    username: str | None = None
    """Of the access control list; None is the user ``default``."""
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    verify: bool | str = True
    """Check certificates and host names; a path is a file of certificate authorities."""
    certificate: str | None = None
    """File of the certificate that this side shows, for servers that want one."""
    private_key: str | None = None
    connections: int = 4
    """Parts of batches under way at once, for reads and for writes each; connections to each server."""
    connect_timeout: float = 1.0
    read_timeout: float = 5.0
    """Silence on a connection after which it is given up."""
    watch_seconds: float = 30.0
    """Pause between two looks at the server's own figures and at the map of a cluster."""
    list_seconds: float = 300.0
    """Pause between two listings, which are made where there is a capacity to count against."""

    def __post_init__(self) -> None:
        """Raises ValueError for settings that contradict themselves."""
        split_address(self.address)
        if self.cluster and self.database:
            raise ValueError("a cluster has only database 0")
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key go together: set both or neither")
        if self.username is not None and self.password is None:
            raise ValueError("username needs a password")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 address may stand in brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
