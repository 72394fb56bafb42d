"""What the commands of `sgkv node` do."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from sgkv.cli.config import USAGE, complain
from sgkv.config import ConfigError
from sgkv.config.units import approximate_size
from sgkv.node.daemon import daemon_config
from sgkv.node.daemon import serve as serve_node
from sgkv.node.lane import RefusedError
from sgkv.node.look import status_of
from sgkv.node.rules import shown
from sgkv.node.wire import WireError


def run_daemon(config: Path | None) -> int:
    """Serve until a signal. Returns the exit code."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    try:
        resolved = daemon_config(config)
        for warning in resolved.warnings:
            typer.echo(f"warning: {warning}", err=True)
        serve_node(
            resolved,
            reload=lambda: daemon_config(config).config,
            ready=lambda path: typer.echo(f"sgkv node: serving {path}"),
        )
    except ConfigError as error:
        return complain(error)
    except (ValueError, OSError) as error:
        typer.echo(f"sgkv node: {error}", err=True)
        return USAGE
    return 0


def print_status(config: Path | None, *, as_json: bool) -> int:
    """Ask the daemon how it is. Returns the exit code."""
    try:
        resolved = daemon_config(config)
    except ConfigError as error:
        return complain(error)
    try:
        _, facts = status_of(resolved.socket, shown(resolved.config.node.token) or "")
    except RefusedError as error:
        typer.echo(f"{resolved.socket}: the daemon refuses: {error}", err=True)
        return 1
    except (WireError, OSError) as error:
        typer.echo(f"{resolved.socket}: no daemon answers: {error}", err=True)
        return 1
    typer.echo(json.dumps(facts) if as_json else "\n".join(_lines(facts)))
    return 0


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a person wants to know first."""
    yield f"sgkv {facts['version']}, process {facts['pid']}, up for {facts['uptime_seconds']:.0f} s"
    for name, tier in facts["tiers"].items():
        of = f" of {approximate_size(tier['capacity_bytes'])}" if tier["capacity_bytes"] else ""
        yield f"tier {name}: {approximate_size(tier['used_bytes'])}{of} in {tier['blobs']} blobs"
    for name, tenant in facts["tenants"].items():
        quota = tenant["quota_bytes"]
        of = f" of {approximate_size(quota)}" if quota else ""
        yield f"tenant {name}: {approximate_size(tenant['cpu_bytes'])}{of} of the cpu tier"
    yield f"waiting to be written: {approximate_size(facts['write_behind_bytes'])}"
    for one in facts["connections"]:
        yield (
            f"process {one['pid']} of user {one['uid']} ({one['software']}): {one['namespaces']} namespaces, "
            f"{approximate_size(one['shared_bytes'])} shared, {one['held_blocks']} blocks held"
        )
