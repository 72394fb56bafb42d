"""The SGLang flags for a configuration file.

A fact of SGLang 0.5.23 (`HybridCacheController.parse_storage_backend_extra_config`): the extra config is
JSON, or ``@`` and the name of a .json, .yaml, .yml or .toml file.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sgkv.cli.app import Mode

EXTRA = "--hicache-storage-backend-extra-config"
PAGE_SIZE = ("--page-size", "64")
"""SGLang's own default is a page a token, each of which would be looked up by itself."""


def flags(path: Path | None, mode: Mode) -> list[str]:
    """The arguments for `sglang serve` or `python -m sglang.launch_server`, one an item.

    Raises ConfigError where the file cannot be used. Values stand as they are in the file; the
    environment is read by the server when it starts.
    """
    from sgkv.config import load
    from sgkv.sglang.launch import ATTACHED, expand

    config = load(file=path, environ={}).config
    named = f"@{path.absolute()}" if path else None
    chosen = ["--enable-hierarchical-cache", "--hicache-storage-backend"]
    if mode == "flag":
        return [*chosen, "sgkv", *([EXTRA, named] if named else [])]
    extra, _ = expand(named)
    if config.mode == "attach":
        extra = {**ATTACHED, **extra}
    return [*chosen, "dynamic", EXTRA, json.dumps(extra), *PAGE_SIZE]


def linker_flags(path: Path | None) -> list[str]:
    """The same for the external cache linker, in place of HiCache."""
    from sgkv.config import load
    from sgkv.sglang.launch import linker_arguments

    load(file=path, environ={})
    return [*linker_arguments({"config": str(path.absolute())} if path else {}), *PAGE_SIZE]


def print_flags(path: Path | None, mode: Mode, *, linker: bool = False) -> int:
    """Print `flags` or `linker_flags` ready to paste, advice on standard error. Returns the exit code."""
    from sgkv.cli.config import complain
    from sgkv.config import ConfigError
    from sgkv.config.sources import FILE_VARIABLE

    named = os.environ.get(FILE_VARIABLE)
    path = path or (Path(named) if named else None)
    try:
        typer.echo(" ".join(map(shlex.quote, linker_flags(path) if linker else flags(path, mode))))
    except ConfigError as error:
        return complain(error)
    if linker or mode == "dynamic":
        typer.echo(
            "Keep your own --page-size if it is 16 or more: each page is looked up by itself.", err=True
        )
    return 0
