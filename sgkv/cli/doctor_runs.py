"""What `sgkv doctor` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from sgkv.cli.config import USAGE, complain
from sgkv.config import ConfigError, ResolvedConfig, load, resolve
from sgkv.doctor import disks, host, installation, misses, node, remote, settings, sglang_flags
from sgkv.doctor.finding import Finding
from sgkv.doctor.report import tell
from sgkv.doctor.sglang_arguments import ServerError, SglangArguments, fetch


def examine_machine(config: Path | None, json_path: Path | None, ranks: int, *, offline: bool) -> int:
    """Returns the exit code."""
    try:
        resolved = resolve(load(file=config).config)
    except ConfigError as error:
        return complain(error)
    return tell(_machine(resolved, ranks, offline=offline), json_path)


def examine_sglang(server: str | None, key: str | None, flags: Sequence[str], json_path: Path | None) -> int:
    """Of a running server where there is one, else of a command line. Returns the exit code."""
    try:
        return tell(_server(server, key) if server else _flags(flags), json_path)
    except ServerError as error:
        typer.echo(str(error), err=True)
        return USAGE


def _machine(resolved: ResolvedConfig, ranks: int, *, offline: bool) -> Iterator[Finding]:
    kinds = frozenset(tier.type for tier in resolved.config.tiers)
    yield from installation.examine(installation.this_installation(), kinds)
    yield from host.examine(host.this_host(), resolved, ranks)
    yield from settings.examine(resolved)
    yield from disks.examine(resolved)
    if not offline:
        yield from remote.examine(resolved)
        yield from node.examine(resolved)


def _server(url: str, key: str | None) -> Iterator[Finding]:
    arguments = SglangArguments.of_server(url, key)
    yield from sglang_flags.examine(arguments)
    if arguments.on("enable_metrics"):
        yield from misses.examine(fetch(f"{url.rstrip('/')}/metrics", key).decode(errors="replace"))


def _flags(flags: Sequence[str]) -> Iterator[Finding]:
    return sglang_flags.examine(SglangArguments.of_flags(flags))
