"""The vLLM flag for a configuration file."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer


def flags(path: Path | None, host_bytes: int) -> list[str]:
    """The arguments for `vllm serve` with sgkv below vLLM's host memory, one an item.

    Raises ConfigError where the file cannot be used.
    """
    from sgkv.vllm.launch import transfer_config

    return _flag(transfer_config(_settings(path), host_bytes))


def connector_flags(path: Path | None, role: str) -> list[str]:
    """The same for the connector in `role`, one of vLLM's."""
    from sgkv.vllm.launch import connector_config

    return _flag(connector_config(_settings(path), role=role))


def print_flags(path: Path | None, host_memory: str) -> int:
    """Print `flags` ready to paste. Returns the exit code."""
    from sgkv.cli.config import USAGE
    from sgkv.config.units import parse_size

    try:
        host_bytes = parse_size(host_memory)
    except ValueError as error:
        typer.echo(f"--host-memory: {error}", err=True)
        return USAGE
    return _print(lambda: flags(_named(path), host_bytes))


def print_connector_flags(path: Path | None, role: str) -> int:
    """Print `connector_flags` ready to paste. Returns the exit code."""
    return _print(lambda: connector_flags(_named(path), role))


def _settings(path: Path | None) -> dict[str, Any]:
    """The file is named, not copied: vLLM's process reads it, and the environment, when it starts."""
    from sgkv.config import load

    load(file=path, environ={})
    return {"config": str(path.absolute())} if path else {}


def _flag(transfer: Mapping[str, Any]) -> list[str]:
    return ["--kv-transfer-config", json.dumps(transfer)]


def _named(path: Path | None) -> Path | None:
    from sgkv.config.sources import FILE_VARIABLE

    named = os.environ.get(FILE_VARIABLE)
    return path or (Path(named) if named else None)


def _print(make: Callable[[], list[str]]) -> int:
    from sgkv.cli.config import complain
    from sgkv.config import ConfigError

    try:
        typer.echo(" ".join(map(shlex.quote, make())))
    except ConfigError as error:
        return complain(error)
    return 0
