"""Who may attach, and for which tenants."""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """The process at the other end, as the kernel knows it (SO_PEERCRED, unix(7))."""

    pid: int
    """0 where it is not visible from this PID namespace."""
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    return Peer(
        *_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    )


class DeniedError(Exception):
    """The peer may not do that; the text is for its log."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a daemon knows of one tenant."""

    token: str | None = None
    quota: int | None = None
    """Bytes of the cpu tier."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of a daemon."""

    users: frozenset[int] = frozenset()
    """Beside the daemon's own."""
    token: str | None = None
    """Opens everything. Where no tenant is named, everybody must show it."""
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    """With any named there are no others."""

    def admit(self, peer: Peer, token: str) -> Grant:
        """What a peer may do that shows `token`. Raises DeniedError."""
        if peer.uid != os.geteuid() and peer.uid not in self.users:
            raise DeniedError(f"user {peer.uid} is not in node.users")
        if self.token is not None and _same(self.token, token):
            return Grant(None)
        if not self.tenants:
            if self.token is not None:
                raise DeniedError("the token is not the daemon's: set node.token")
            return Grant(None)
        names = [name for name, tenant in self.tenants.items() if _opens(tenant, token)]
        if not names:
            raise DeniedError("the token is of none of the daemon's tenants: set node.token")
        return Grant(frozenset(names))

    def quota(self, tenant: str) -> int | None:
        known = self.tenants.get(tenant)
        return known.quota if known else None


@dataclass(frozen=True, slots=True)
class Grant:
    """What one connection may do."""

    tenants: frozenset[str] | None
    """None is all of them."""

    def covers(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants

    def require(self, tenant: str) -> None:
        """Raises DeniedError for a tenant that this connection does not speak for."""
        if not self.covers(tenant):
            raise DeniedError(f"tenant {tenant!r} is not one that this token speaks for")


def _opens(tenant: Tenant, token: str) -> bool:
    return tenant.token is None or _same(tenant.token, token)


def _same(expected: str, shown: str) -> bool:
    return hmac.compare_digest(expected.encode(), shown.encode())
