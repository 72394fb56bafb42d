"""The vLLM flag for a configuration file."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import typer


def flags(path: Path | None, host_bytes: int) -> list[str]:
    """The arguments for `vllm serve`, one an item.

    Raises ConfigError where the file cannot be used. The file is named, not copied: vLLM's process reads
    it, and the environment, when it starts.
    """
    from sgkv.config import load
    from sgkv.vllm.launch import transfer_config

    load(file=path, environ={})
    tier = {"config": str(path.absolute())} if path else {}
    return ["--kv-transfer-config", json.dumps(transfer_config(tier, host_bytes))]


def print_flags(path: Path | None, host_memory: str) -> int:
    """Print `flags` ready to paste. Returns the exit code."""
    from sgkv.cli.config import USAGE, complain
    from sgkv.config import ConfigError
    from sgkv.config.sources import FILE_VARIABLE
    from sgkv.config.units import parse_size

    named = os.environ.get(FILE_VARIABLE)
    try:
        host_bytes = parse_size(host_memory)
    except ValueError as error:
        typer.echo(f"--host-memory: {error}", err=True)
        return USAGE
    try:
        typer.echo(" ".join(map(shlex.quote, flags(path or (Path(named) if named else None), host_bytes))))
    except ConfigError as error:
        return complain(error)
    return 0
