"""What `sgkv router` does."""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path

import typer
import uvicorn

from sgkv.cli.config import USAGE
from sgkv.config import ConfigError
from sgkv.router.prompts import PromptReader
from sgkv.router.proxy import make_app
from sgkv.router.settings import load_settings


def run_router(config: Path, host: str, port: int) -> int:
    """Serve until a signal. Returns the exit code."""
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
