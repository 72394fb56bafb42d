"""From a configuration to numbers: what this machine makes of ``auto`` and of shares.

Pure but for the facts it asks the machine for. Impossible settings are refused here, before an engine
has loaded a model; doubtful ones become warnings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sgkv.config.errors import ConfigError, Problem
from sgkv.config.machine import Machine, Place, this_machine
from sgkv.config.model import Config
from sgkv.config.tiers import AnyTier, CpuTier, DiskTier, MooncakeTier, S3Tier, ValkeyTier
from sgkv.config.units import Auto, Percent, approximate_size

MIB, GIB = 2**20, 2**30
_SOCKET_PATH = 107
"""Bytes of the path of a Unix socket (unix(7))."""


@dataclass(frozen=True, slots=True)
class ResolvedCpu:
    """A cpu tier with its size."""

    tier: CpuTier
    capacity: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class ResolvedDisk:
    """A disk tier with its place and size."""

    tier: DiskTier
    capacity: int
    """Bytes of blobs."""
    path: Path
    min_free: int
    """Bytes to leave free on the file system."""


@dataclass(frozen=True, slots=True)
class ResolvedS3:
    """An s3 tier with its size."""

    tier: S3Tier
    capacity: int | None
    """Bytes; None is no limit of ours."""
    ttl: float | None
    """Seconds after which its blobs are swept, as in `Config.ttl`."""


@dataclass(frozen=True, slots=True)
class ResolvedMooncake:
    """A mooncake tier; how much it holds is for its nodes to say."""

    tier: MooncakeTier
    capacity: None = None


@dataclass(frozen=True, slots=True)
class ResolvedValkey:
    """A valkey tier with its size."""

    tier: ValkeyTier
    capacity: int | None
    """Bytes; None leaves it to the server."""


ResolvedTier: TypeAlias = ResolvedCpu | ResolvedDisk | ResolvedMooncake | ResolvedS3 | ResolvedValkey


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A configuration with every ``auto`` and share turned into a number for one machine."""

    config: Config
    tiers: tuple[ResolvedTier, ...]
    """In the order of `config.tiers`; none with `mode: attach`."""
    write_behind_bytes: int
    warnings: tuple[str, ...]
    """What will work, but perhaps not as meant; each line names its field."""
    socket: Path = Path()
    """Of the node's daemon."""


def resolve(config: Config, machine: Machine | None = None) -> ResolvedConfig:
    """Decide every open number of `config` for `machine` (by default the one we run on).

    Raises ConfigError for what cannot work there: a tier larger than the memory or the file system,
    a path that is a file or may not be written.
    """
    machine = machine or this_machine()
    own = () if config.mode == "attach" else config.tiers
    tiers = tuple(_tier(tier, config, machine) for tier in own)
    socket = (
        machine.runtime_home / "sgkv" / "node.sock" if config.node.socket == "auto" else config.node.socket
    )
    problems = [problem for index, tier in enumerate(tiers) for problem in _problems(index, tier, machine)]
    if len(os.fsencode(socket)) > _SOCKET_PATH:
        problems.append(
            Problem("node.socket", f"{socket} is longer than {_SOCKET_PATH} bytes, which no socket can be")
        )
    if problems:
        raise ConfigError(problems)
    warnings = [line for index, tier in enumerate(tiers) for line in _doubts(index, tier, machine)]
    return ResolvedConfig(config, tiers, _queue_bytes(config, tiers), tuple(warnings), socket)


def _tier(tier: AnyTier, config: Config, machine: Machine) -> ResolvedTier:
    if isinstance(tier, CpuTier):
        return _cpu(tier, machine)
    if isinstance(tier, DiskTier):
        return _disk(tier, machine)
    if isinstance(tier, MooncakeTier):
        return ResolvedMooncake(tier)
    capacity = tier.capacity if isinstance(tier.capacity, int) else None
    if isinstance(tier, ValkeyTier):
        return ResolvedValkey(tier, capacity)
    return ResolvedS3(tier, capacity, config.ttl)


def _cpu(tier: CpuTier, machine: Machine) -> ResolvedCpu:
    automatic = max(64 * MIB, min(4 * GIB, machine.memory * 5 // 100))
    return ResolvedCpu(tier, _bytes(tier.capacity, machine.memory, automatic))


def _disk(tier: DiskTier, machine: Machine) -> ResolvedDisk:
    path = machine.cache_home / "sgkv" if tier.path == "auto" else tier.path
    place = machine.place(path)
    automatic = _automatic_disk(path, place, machine) if tier.capacity == "auto" else 0
    return ResolvedDisk(
        tier,
        capacity=_bytes(tier.capacity, place.total, automatic),
        path=path,
        min_free=_bytes(tier.min_free, place.total, min(2 * GIB, place.total * 2 // 100)),
    )


def _automatic_disk(path: Path, place: Place, machine: Machine) -> int:
    """A quarter of what is free or ours already, so that a restart does not shrink the store."""
    most = 64 * GIB
    ours = machine.stored(path, max(0, 4 * most - place.free))
    return min(most, (place.free + ours) // 4)


def _bytes(setting: int | Percent | Auto, whole: int, automatic: int) -> int:
    if isinstance(setting, Percent):
        return setting.of(whole)
    return automatic if setting == "auto" else setting


def _queue_bytes(config: Config, tiers: tuple[ResolvedTier, ...]) -> int:
    cpu = next((tier.capacity for tier in tiers if isinstance(tier, ResolvedCpu)), None)
    automatic = GIB if cpu is None else min(GIB, cpu // 2)
    return _bytes(config.write_behind.max_bytes, cpu or 0, automatic)


def _problems(index: int, tier: ResolvedTier, machine: Machine) -> Iterator[Problem]:
    if isinstance(tier, ResolvedDisk):
        yield from _disk_problems(f"tiers.{index}", tier, machine.place(tier.path))
    elif isinstance(tier, ResolvedCpu) and tier.capacity > machine.memory:
        yield _too_large(f"tiers.{index}.capacity", tier.capacity, machine.memory, "this machine's memory")
    elif isinstance(tier, ResolvedMooncake) and tier.tier.segment > machine.memory:
        yield _too_large(f"tiers.{index}.segment", tier.tier.segment, machine.memory, "this machine's memory")


def _disk_problems(field: str, tier: ResolvedDisk, place: Place) -> Iterator[Problem]:
    if not place.is_folder:
        yield Problem(f"{field}.path", f"{tier.path} is, or lies below, a file: name a folder")
    elif not place.writable:
        yield Problem(
            f"{field}.path", f"{tier.path} may not be written by this user: change its owner or name another"
        )
    elif tier.capacity > place.total:
        yield _too_large(f"{field}.capacity", tier.capacity, place.total, f"the file system of {tier.path}")
    elif tier.min_free >= place.total:
        yield _too_large(f"{field}.min_free", tier.min_free, place.total, f"the file system of {tier.path}")
    elif not tier.capacity:
        yield Problem(f"{field}.capacity", f"{tier.path} has no room left: free some, or name another path")


def _too_large(field: str, size: int, limit: int, what: str) -> Problem:
    has = approximate_size(limit)
    return Problem(field, f'{approximate_size(size)} is more than {what} has ({has}): write less, or "auto"')


def _doubts(index: int, tier: ResolvedTier, machine: Machine) -> Iterator[str]:
    if isinstance(tier, ResolvedS3):
        yield from _bucket_doubts(f"tiers.{index}", tier)
        return
    if isinstance(tier, ResolvedMooncake):
        yield from _pool_doubts(f"tiers.{index}", tier.tier)
        return
    if isinstance(tier, ResolvedValkey):
        yield from _key_doubts(f"tiers.{index}", tier.tier)
        return
    size = approximate_size(tier.capacity)
    field = f"tiers.{index}.capacity"
    if isinstance(tier, ResolvedCpu):
        if tier.capacity > machine.memory // 2:
            yield f"{field}: {size} is over half of this machine's memory; every rank takes as much again"
        return
    room = machine.place(tier.path).free - tier.min_free
    if tier.capacity > room and machine.stored(tier.path, tier.capacity) < tier.capacity - room:
        yield (
            f"{field}: {size}, but only {approximate_size(max(0, room))} may be written at {tier.path}: "
            "older chunks are evicted before that size is reached"
        )


def _bucket_doubts(field: str, tier: ResolvedS3) -> Iterator[str]:
    directory = tier.tier.bucket.endswith("--x-s3")
    if directory and tier.tier.encryption is not None:
        yield f"{field}.encryption: is left out: directory buckets encrypt as they say, not as a request does"
    if tier.ttl is not None and tier.tier.list_every is None:
        yield f"{field}.list_every: without listings nothing older than ttl is removed from the bucket"


def _key_doubts(field: str, tier: ValkeyTier) -> Iterator[str]:
    if "{" in tier.prefix and tier.cluster:
        yield f"{field}.prefix: braces may put every key into one hash slot, hence on one node of the cluster"
    if (tier.password is not None or tier.password_file is not None) and not tier.tls:
        yield f"{field}.tls: without it the password goes over the network in the clear"


def _pool_doubts(field: str, tier: MooncakeTier) -> Iterator[str]:
    if tier.segment:
        yield f"{field}.segment: what a server holds for the pool is gone when it ends; storage nodes stay"
    if tier.protocol == "rdma" and not any(Path("/sys/class/infiniband").glob("*")):
        yield f"{field}.protocol: there is no RDMA device here, and without one Mooncake takes tcp silently"
