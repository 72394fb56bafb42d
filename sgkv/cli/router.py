"""`sgkv router`: a cache-aware router in front of engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def router(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON.")],
    host: Annotated[str, typer.Option(help="Address to listen on; it has no access control.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="To listen at.")] = 7500,
) -> None:
    """Send each request to the engine that answers it soonest: which has its prompt, and is not too busy."""
    from sgkv.cli.router_runs import run_router

    raise typer.Exit(run_router(config, host, port))
