"""What servers say about themselves: memory, keys, what they evict, and what an operator should know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sgkv.backends.base import BackendStats
from sgkv.backends.valkey.dialling import Control
from sgkv.backends.valkey.options import ValkeyOptions


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all servers together, whoever uses them. Bytes of memory, not of blobs."""

    keys: int = 0
    """Of the database."""
    used_bytes: int = 0
    max_bytes: int = 0
    """0 where a server has no limit."""
    evicted_keys: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, row.name) + getattr(other, row.name) for row in fields(Figures)))

    def as_stats(self) -> BackendStats:
        """The gauges of a tier whose bound is the servers' own."""
        return BackendStats(
            blobs=self.keys,
            used_bytes=self.used_bytes,
            capacity_bytes=self.max_bytes,
            evicted_blobs=self.evicted_keys,
        )

    def states(self) -> dict[str, int]:
        return {f"server_{row.name}": getattr(self, row.name) for row in fields(Figures)}


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all servers."""

    figures: Figures
    descriptions: tuple[str, ...]
    """A line a server."""
    doubts: tuple[str, ...]
    """What will not go as it may be meant, and what to change."""


def look(
    addresses: Iterable[str],
    control: Control,
    options: ValkeyOptions,
    capacity: int | None,
) -> Look:
    """Ask every server by INFO. Raises ConnectionError where one does not answer."""
    total, descriptions, doubts = Figures(), [], dict[str, None]()
    for address in addresses:
        with control(address) as client:
            info = client.info()
        figures = _figures(info, options.database)
        total += figures
        descriptions.append(_described(address, info, figures))
        doubts |= dict.fromkeys(f"{address} {doubt}" for doubt in _doubts(info, options, capacity))
    return Look(total, tuple(descriptions), tuple(doubts))


def _figures(info: Mapping[str, Any], database: int) -> Figures:
    return Figures(
        keys=int(info.get(f"db{database}", {}).get("keys", 0)),
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
        evicted_keys=int(info.get("evicted_keys", 0)),
    )


def _described(address: str, info: Mapping[str, Any], figures: Figures) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version", info.get("redis_version", "of unknown version"))
    limit = f"{figures.max_bytes:,}" if figures.max_bytes else "no limit"
    return (
        f"{address}: {name} {version}, {figures.keys:,} keys, {figures.used_bytes:,} bytes of {limit}, "
        f"{info.get('maxmemory_policy', 'unknown policy')}"
    )


def _doubts(info: Mapping[str, Any], options: ValkeyOptions, capacity: int | None) -> Iterator[str]:
    policy = str(info.get("maxmemory_policy", ""))
    if not info.get("maxmemory") and capacity is None:
        yield "has no maxmemory, and the tier no capacity: set one, or it grows while there is memory"
    elif info.get("maxmemory") and policy == "noeviction":
        yield "refuses writes when it is full (noeviction): set maxmemory-policy allkeys-lru"
    elif info.get("maxmemory") and policy.startswith("volatile-"):
        yield f"evicts only keys that expire ({policy}): set ttl, or maxmemory-policy allkeys-lru"
    if info.get("role") == "slave":
        yield "is a replica: it refuses writes; name the primary"
    if info.get("cluster_enabled") and not options.cluster:
        yield "is a node of a cluster: set cluster: true"
    if info.get("aof_enabled"):
        yield "writes each blob to its log as well (appendonly): a cache can do without"
