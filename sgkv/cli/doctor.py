"""`sgkv doctor`: this machine, the configuration and its tiers; a server of SGLang; a pool of Mooncake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sgkv.cli.mooncake import doctor as mooncake

doctor_app = typer.Typer(help="Find out what is wrong, and what to do about it.")
doctor_app.command("mooncake")(mooncake)

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the findings here.")]


@doctor_app.callback(invoke_without_command=True)
def doctor(
    context: typer.Context,
    config: Config = None,
    json: Json = None,
    ranks: Annotated[
        int,
        typer.Option(min=1, help="Engine processes on this machine, each with a store."),
    ] = 1,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no bucket and no pool.")] = False,
) -> None:
    """Look at the installation, the machine, the configuration and its tiers.

    Exit code 1 when something must be mended, 2 when the configuration cannot be read.
    """
    if context.invoked_subcommand is None:
        from sgkv.cli.doctor_runs import examine_machine

        raise typer.Exit(examine_machine(config, json, ranks, offline=offline))


@doctor_app.command("sglang")
def sglang(
    flags: Annotated[
        list[str] | None, typer.Argument(metavar="[-- FLAG...]", help="As given to `sglang serve`.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="A running server, e.g. http://localhost:30000.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="SGLANG_API_KEY", show_envvar=True, help="Of that server.")
    ] = None,
    json: Json = None,
) -> None:
    """Find flags that defeat the cache and, of a running server, why pages were missed."""
    from sgkv.cli.doctor_runs import examine_sglang

    if (server is None) == (not flags):
        raise typer.BadParameter("name a running --server, or its flags after --")
    raise typer.Exit(examine_sglang(server, api_key, flags or [], json))
