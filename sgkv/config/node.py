"""The node's daemon: where engines find it, and what it lets them do."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt
from pydantic import Field, SecretStr

from sgkv.config.base import Section, TierPath
from sgkv.config.tiers import Positive
from sgkv.config.units import Size


class TenantConfig(Section):
    """One tenant of a daemon."""

    token: SecretStr | None = Field(None, min_length=8)
    """What its engines must show; null lets any engine that may connect speak for it."""
    quota: Annotated[Size, Gt(0)] | None = None
    """Bytes of the cpu tier for its pages, over all of its namespaces; null is no limit of its own."""


class NodeConfig(Section):
    """For engines with `mode: attach` and for `sgkv node`, which may read the same file."""

    socket: TierPath = "auto"
    """The daemon's Unix socket; auto is ``sgkv/node.sock`` in the user's runtime folder."""
    token: SecretStr | None = Field(None, min_length=8)
    """What an engine shows to the daemon."""
    retry: Positive = 2.0
    """Longest pause between an engine's attempts to reach a daemon that is away."""
    fence: Positive = 1.0
    """How long a daemon that was lent an engine's pages may stay silent past the call's deadline."""
    tenants: dict[str, TenantConfig] = Field(default_factory=dict)
    """With any named, the daemon serves no other."""
    users: tuple[int, ...] = ()
    """Numeric ids of users, beside the daemon's own, whose engines may attach."""
    namespace_quota: Annotated[Size, Gt(0)] | None = None
    """Bytes of the cpu tier that one namespace may take; null is no limit."""
    connections: int = Field(256, ge=1, le=4096)
    """Connections at once; an engine's rank uses one for each of its threads that calls."""
    large_calls: int = Field(4, ge=1, le=256)
    """Transfers of more than 4 MiB at once; the others wait for their turn."""
    small_calls: int = Field(4, ge=1, le=256)
    """Smaller ones at once, beside the large."""
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """Of Prometheus metrics; null serves none."""
    metrics_address: str = "127.0.0.1"
    """Where that port listens. It has no access control: 0.0.0.0 is for networks that have."""
