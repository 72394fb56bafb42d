"""`sgkv node`: from a file to a daemon, and what signals make of it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sgkv.config import Config, ConfigError, Problem, ResolvedConfig, load, resolve
from sgkv.metrics import Metrics, process_metrics
from sgkv.node.rules import rules_of
from sgkv.node.server import NodeServer, claimed
from sgkv.node.service import Service
from sgkv.node.turns import Turns
from sgkv.store.build import open_store
from sgkv.store.store import Store

logger = logging.getLogger("sgkv")

_LAST_CALLS = 5.0
"""Seconds that calls under way have on SIGTERM; what is queued for slower tiers has its own."""
_GAUGE_SECONDS = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_RELOADED = frozenset({"token", "tenants", "users", "namespace_quota", "connections"})
"""Fields of `NodeConfig` that a running daemon takes over."""


_APART = (
    "engines name what they store, and do not know that a daemon's tier loses some of it: set "
    "allow_mixing: true if all of them may share such KV, or quantize in an engine's own tiers"
)


def daemon_config(file: Path | None) -> ResolvedConfig:
    """The configuration of a daemon, which may lie in the same file as its engines'. Raises ConfigError."""
    config = load(file=file).config.embedded
    if config.losses:
        raise ConfigError([Problem("tiers.codec.quantize", _APART)])
    return resolve(config)


def serve(resolved: ResolvedConfig, reload: Callable[[], Config], ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT, then drain. On the main thread.

    `reload` reads the file again, on SIGHUP. `ready` is told the socket's path once engines may come. Raises
    ValueError or OSError, saying what to change, where the daemon cannot work.
    """
    # Before any thread is made: they all inherit that these signals wait for us.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with claimed(resolved.socket), _running(resolved) as running:
            ready(str(resolved.socket))
            _obey(*running, resolved.config, reload)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _running(resolved: ResolvedConfig) -> Iterator[tuple[NodeServer, Store, Metrics]]:
    node = resolved.config.node
    metrics = process_metrics()
    store = open_store(resolved, metrics, shared_arena=True)
    try:
        service = Service(store, rules_of(resolved.config), Turns(node.large_calls, node.small_calls))
        server = NodeServer(service, resolved.socket)
        try:
            server.start()
            if node.metrics_port is not None:
                _export(node.metrics_port, node.metrics_address)
            yield server, store, metrics
        finally:
            server.stop(_LAST_CALLS)
    finally:
        store.close()


def _export(port: int, address: str) -> None:
    from prometheus_client import start_http_server

    start_http_server(port, addr=address)


def _obey(
    server: NodeServer, store: Store, metrics: Metrics, config: Config, reload: Callable[[], Config]
) -> None:
    """Until a signal to end; keeps the gauges fresh meanwhile."""
    while True:
        received = signal.sigtimedwait(_SIGNALS, _GAUGE_SECONDS)
        metrics.update(store.stats())
        if received is None:
            continue
        if received.si_signo != signal.SIGHUP:
            logger.warning("sgkv: %s: draining", signal.Signals(received.si_signo).name)
            return
        config = _reloaded(server, config, reload)


def _reloaded(server: NodeServer, before: Config, reload: Callable[[], Config]) -> Config:
    """Take over what can be; say what waits for a restart. A bad file changes nothing."""
    try:
        config = reload()
    except ConfigError as error:
        logger.error("sgkv: the configuration is not reloaded: %s", error)  # noqa: TRY400
        return before
    server.follow(rules_of(config))
    waiting = sorted(_changed(before, config))
    logger.warning("sgkv: reloaded%s", f"; after a restart: {', '.join(waiting)}" if waiting else "")
    return config


def _changed(before: Config, after: Config) -> Iterator[str]:
    """Fields that differ and that a running daemon cannot take over."""
    for name in type(before).model_fields:
        if name not in ("node", "mode") and getattr(before, name) != getattr(after, name):
            yield name
    for name in type(before.node).model_fields:
        if name not in _RELOADED and getattr(before.node, name) != getattr(after.node, name):
            yield f"node.{name}"
