"""`sgkv mooncake` and `sgkv doctor mooncake`: a pool for development, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sgkv.backends.mooncake import MooncakeOptions

mooncake_app = typer.Typer(help="Pooled memory by Mooncake Store.", no_args_is_help=True)

USAGE = 2
"""Exit code for what cannot be meant."""


def _size(text: str) -> int:
    from sgkv.config.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@mooncake_app.callback()
def _group() -> None:
    """Pooled memory by Mooncake Store."""


@mooncake_app.command("up")
def up(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Run this, then end the pool.")
    ] = None,
    *,
    size: Annotated[int, typer.Option(parser=_size, metavar="SIZE", help="Memory of the storage node.")] = 1
    << 30,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the master's RPC.")] = 50051,
    admin_port: Annotated[int, typer.Option(min=1, max=65535, help="Of the master's HTTP server.")] = 9003,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="In a network of its own with only loopback.")
    ] = False,
) -> None:
    """Start a master and a storage node on this machine, for development; Ctrl-C ends them."""
    from sgkv.cli.mooncake_runs import run_pool

    raise typer.Exit(run_pool(size, port, admin_port, command or [], isolated=isolated))


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of a pool that no configuration names.")
    ] = None,
    admin: Annotated[
        str, typer.Option(metavar="URL", help="Of its HTTP server; default: port 9003 of its host.")
    ] = "",
) -> None:
    """Look at library, master, nodes, transport and tenants; exit code 1 when a tier could not work."""
    from sgkv.cli.mooncake_runs import print_findings

    raise typer.Exit(print_findings(_options(config, master, admin)))


def _options(config: Path | None, master: str | None, admin: str) -> MooncakeOptions:
    """The pool that is meant; ends the command where there is none."""
    from sgkv.backends.mooncake import MooncakeOptions
    from sgkv.cli.config import complain
    from sgkv.config import ConfigError, MooncakeTier, load
    from sgkv.store.pooled import mooncake_options

    if master is not None:
        try:
            return MooncakeOptions(master=master, admin=admin)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--master") from error
    try:
        tiers = load(file=config).config.tiers
    except ConfigError as error:
        raise typer.Exit(complain(error)) from error
    for tier in tiers:
        if isinstance(tier, MooncakeTier):
            return mooncake_options(tier)
    typer.echo("the configuration has no mooncake tier: name a pool with --master", err=True)
    raise typer.Exit(USAGE)
