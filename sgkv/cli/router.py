"""`sgkv router`: a cache-aware router in front of engines."""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path
from typing import Annotated

import typer

from sgkv.cli.config import USAGE


def router(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON.")],
    host: Annotated[str, typer.Option(help="Address to listen on; it has no access control.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 7500,
) -> None:
    """Send each request to the engine that answers it soonest: which has its prompt, and is not too busy."""
    raise typer.Exit(run_router(config, host, port))


def run_router(config: Path, host: str, port: int) -> int:
    """Serve until a signal. Returns the exit code."""
    import uvicorn

    from sgkv.config import ConfigError
    from sgkv.router.prompts import PromptReader
    from sgkv.router.proxy import make_app
    from sgkv.router.settings import load_settings

    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
    try:
        settings = load_settings(config)
        reader = PromptReader.of_model(settings.page_tokens, settings.tokenizer)
        ipaddress.ip_address(host)
    except (ConfigError, ValueError, OSError, ImportError) as error:
        typer.echo(f"sgkv router: {error}", err=True)
        return USAGE
    uvicorn.run(
        make_app(settings, reader), host=host, port=port, log_config=None, access_log=False, ws="none"
    )
    return 0
