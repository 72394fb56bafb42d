"""From a configuration to a running store."""

from __future__ import annotations

import os
import socket

from sgkv.backends.base import Backend
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.disk import DiskBackend
from sgkv.config import (
    Config,
    ConfigError,
    ControlConfig,
    Problem,
    ResolvedConfig,
    ResolvedCpu,
    ResolvedDisk,
    ResolvedMooncake,
    ResolvedS3,
    ResolvedTier,
    ResolvedValkey,
)
from sgkv.config.model import RolloutConfig
from sgkv.counters import Counters
from sgkv.decide.rollout import Rollout, RolloutMode
from sgkv.keys import is_blob_key
from sgkv.metrics import Metrics
from sgkv.store.base import PageStore
from sgkv.store.coded import coded
from sgkv.store.gating import gated
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from sgkv.store.wrapping import wrap


def build_store(resolved: ResolvedConfig, metrics: Metrics | None = None) -> PageStore:
    """The store of a configuration: one of this process, or that of the node's daemon.

    `metrics` receives every count, and every call of a tier of this process.
    """
    if resolved.config.mode == "attach":
        return _attached(resolved, metrics)
    return open_store(resolved, metrics)


def open_store(
    resolved: ResolvedConfig, metrics: Metrics | None = None, *, shared_arena: bool = False
) -> Store:
    """Open every tier and the store over them. Starts threads; `Store.close` ends them.

    `shared_arena` makes the cpu tier's memory one that other processes can map.
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
    tiers = [_tier(tier, config, metrics, shared_arena=shared_arena) for tier in resolved.tiers]
    gate = None
    if config.gate.mode != "off":
        tiers, gate = gated(tiers, config.gate)
    store = Store(tiers, options, _counters(metrics), gate=gate, rollout=_rollout(config.rollout))
    _report(store, config.control)
    return store


def _rollout(config: RolloutConfig) -> Rollout | None:
    if not config.active:
        return None
    return Rollout(
        RolloutMode(config.mode),
        percent=config.percent,
        most_failed=config.max_failed,
        slowest=config.max_read,
        window=config.window,
        pause=config.pause,
    )


def _report(store: Store, control: ControlConfig) -> None:
    """Have an agent tell the controller what the store holds, until the store is closed."""
    if control.url is None or control.token is None:
        return
    from sgkv.control.agent import Agent

    name = f"{socket.gethostname()}-{os.getpid()}" if control.instance == "auto" else control.instance
    token = control.token.get_secret_value()
    try:
        agent = Agent(
            store,
            control.url,
            token,
            name,
            every=control.every,
            events=control.events,
            publish=control.publish,
        )
    except OSError as error:
        store.close()
        raise ConfigError([Problem("control.publish", str(error))]) from error
    store.before_closing(agent.close)


def _counters(metrics: Metrics | None) -> Counters:
    return Counters(metrics.count) if metrics else Counters()


def _attached(resolved: ResolvedConfig, metrics: Metrics | None) -> PageStore:
    from sgkv.node.store import AttachedStore

    config, token = resolved.config, resolved.config.node.token
    return AttachedStore(
        resolved.socket,
        token=token.get_secret_value() if token else "",
        chunk_tokens=config.chunk_tokens,
        retry=config.node.retry,
        fence=config.node.fence,
        counters=_counters(metrics),
    )


def _tier(resolved: ResolvedTier, config: Config, metrics: Metrics | None, *, shared_arena: bool) -> Tier:
    tier = resolved.tier
    if isinstance(resolved, ResolvedCpu):
        cpu = CpuBackend(
            resolved.capacity,
            name=tier.name,
            copy_threads=resolved.tier.copy_threads,
            eviction=resolved.tier.eviction,
            shared=shared_arena,
        )
        return Tier(tier.name, cpu, arena=cpu)
    backend = coded(open_backend(resolved), resolved.tier.codec, config)
    backend = wrap(backend, resolved.tier, metrics)
    return Tier(tier.name, backend, promote=resolved.tier.promote)


def open_backend(
    resolved: ResolvedDisk | ResolvedMooncake | ResolvedS3 | ResolvedValkey, *, marks_use: bool = True
) -> Backend:
    """The backend of a tier below memory, with nothing around it.

    `marks_use` False is for readers that are no use: they leave no trace in the eviction order. A bucket
    keeps no such order of its own; a pool's and a server's cannot be kept out of.
    """
    if isinstance(resolved, ResolvedS3):
        return _bucket(resolved)
    if isinstance(resolved, ResolvedMooncake):
        return _pool(resolved)
    if isinstance(resolved, ResolvedValkey):
        return _keyed(resolved)
    tier = resolved.tier
    return DiskBackend(
        resolved.path,
        resolved.capacity,
        name=tier.name,
        io_threads=tier.io_threads,
        min_free_bytes=resolved.min_free,
        fsync=tier.fsync,
        eviction=tier.eviction,
        marks_use=marks_use,
    )


def _bucket(resolved: ResolvedS3) -> Backend:
    from sgkv.backends.s3 import S3Backend
    from sgkv.store.buckets import s3_options

    tier, capacity = resolved.tier, resolved.capacity
    return S3Backend(s3_options(tier), name=tier.name, capacity=capacity, ttl=resolved.ttl, ours=is_blob_key)


def _pool(resolved: ResolvedMooncake) -> Backend:
    from sgkv.backends.mooncake import MooncakeBackend
    from sgkv.store.pooled import mooncake_options

    return MooncakeBackend(mooncake_options(resolved.tier), name=resolved.tier.name)


def _keyed(resolved: ResolvedValkey) -> Backend:
    from sgkv.backends.valkey import ValkeyBackend
    from sgkv.store.keyed import valkey_options

    tier, capacity = resolved.tier, resolved.capacity
    return ValkeyBackend(valkey_options(tier), name=tier.name, capacity=capacity, ours=is_blob_key)
