"""From a configuration to a running store."""

from __future__ import annotations

from sgkv.backends.base import Backend
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.disk import DiskBackend
from sgkv.config import ResolvedConfig, ResolvedCpu, ResolvedDisk
from sgkv.counters import Counters
from sgkv.metrics import Metrics
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from sgkv.store.wrapping import wrap


def build_store(resolved: ResolvedConfig, metrics: Metrics | None = None) -> Store:
    """Open every tier and the store over them. Starts threads; `Store.close` ends them.

    `metrics` receives every count and every call of a tier.
    """
    config = resolved.config
    options = StoreOptions(
        chunk_tokens=config.chunk_tokens,
        ttl=config.ttl,
        write_behind_bytes=resolved.write_behind_bytes,
        tail_delay=config.write_behind.tail_delay,
        write_threads=config.write_behind.threads,
        drain_timeout=config.write_behind.drain_timeout,
        promotion_pages=config.limits.promotion_pages,
        remembered_pages=config.limits.remembered_pages,
    )
    counters = Counters(metrics.count) if metrics else Counters()
    return Store([_tier(tier, metrics) for tier in resolved.tiers], options, counters)


def _tier(resolved: ResolvedCpu | ResolvedDisk, metrics: Metrics | None) -> Tier:
    if isinstance(resolved, ResolvedDisk):
        disk = wrap(open_backend(resolved), resolved.tier, metrics)
        return Tier(resolved.tier.name, disk, promote=resolved.tier.promote)
    tier = resolved.tier
    cpu = CpuBackend(resolved.capacity, name=tier.name, copy_threads=tier.copy_threads)
    return Tier(tier.name, cpu, arena=cpu)


def open_backend(resolved: ResolvedDisk, *, marks_use: bool = True) -> Backend:
    """The backend of a tier below memory, with nothing around it.

    `marks_use` False is for readers that are no use: they leave no trace in the eviction order.
    """
    tier = resolved.tier
    return DiskBackend(
        resolved.path,
        resolved.capacity,
        name=tier.name,
        io_threads=tier.io_threads,
        min_free_bytes=resolved.min_free,
        fsync=tier.fsync,
        marks_use=marks_use,
    )
