"""`sgkv recode`: what is in a tier already, coded as the tier's configuration says now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def recode(
    tier: Annotated[str, typer.Argument(metavar="TIER", help="NAME or FILE:NAME.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG."),
    ] = None,
    *,
    namespace: Annotated[str, typer.Option(metavar="DIGEST", help="Only this one.")] = "",
    rate: Annotated[str, typer.Option(help="Bytes a second, e.g. 100MiB.")] = "unlimited",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rewrite blobs that are stored otherwise than the tier would now: compress, decompress, seal anew.

    After `sgkv keys rotate` it seals everything with the new key. It can be stopped and run again.
    """
    from sgkv.cli.recode_runs import run_recode

    raise typer.Exit(run_recode(tier, config, namespace, rate, as_json=json))
