"""`sgkv inspect`: what a tier holds, and what a blob says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

inspect_app = typer.Typer(help="Look into tiers and blobs.", no_args_is_help=True)

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@inspect_app.command("tier")
def tier(
    name: Annotated[str, typer.Argument(metavar="TIER", help="NAME or FILE:NAME.")],
    config: Config = None,
    *,
    namespace: Annotated[str, typer.Option(metavar="DIGEST", help="Only this one.")] = "",
    json: Json = False,
) -> None:
    """List a tier's namespaces: blobs, bytes, age, and what the newest blob of each says."""
    from sgkv.cli.inspect_runs import show_tier

    raise typer.Exit(show_tier(name, config, namespace, as_json=json))


@inspect_app.command("blob")
def blob(
    name: Annotated[str, typer.Argument(metavar="FILE|TIER", help="A file, or the tier that KEY is in.")],
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="With a TIER: NAMESPACE/c/hh/HASH.")
    ] = None,
    config: Config = None,
    *,
    json: Json = False,
) -> None:
    """Print what a blob says and verify it; exit code 1 when it is damaged."""
    from sgkv.cli.inspect_runs import show_blob

    raise typer.Exit(show_blob(name, key, config, as_json=json))
