"""`sgkv node`: the daemon of a machine, and how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

node_app = typer.Typer(help="One store for all engines of a machine.", invoke_without_command=True)

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]


@node_app.callback()
def serve(context: typer.Context, config: Config = None) -> None:
    """Run the daemon in the foreground. SIGTERM drains and ends it, SIGHUP reads the file again."""
    if context.invoked_subcommand is None:
        from sgkv.cli.node_runs import run_daemon

        raise typer.Exit(run_daemon(config))


@node_app.command("status")
def status(
    config: Config = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="All there is, for programs.")] = False,
) -> None:
    """Show who is attached, what is stored and who uses how much; exit code 1 without a daemon."""
    from sgkv.cli.node_runs import print_status

    raise typer.Exit(print_status(config, as_json=json))
