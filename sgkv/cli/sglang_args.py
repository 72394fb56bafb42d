"""The SGLang flags for a configuration file.

Facts of SGLang 0.5.23 (`HybridCacheController.parse_storage_backend_extra_config` and the dynamic
loader): the extra config is JSON, or ``@`` and the name of a .json, .yaml, .yml or .toml file;
`interface_v1` selects the zero-copy calls, and the keys of pages before a span, which chunks are made
of, are passed only on request.
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

DYNAMIC: dict[str, object] = {
    "backend_name": "sgkv",
    "module_path": "sgkv.sglang.hicache",
    "class_name": "SgkvHiCache",
    "interface_v1": 1,
    "hicache_storage_pass_prefix_keys": True,
}


def flags(path: Path | None, mode: Mode) -> list[str]:
    """The arguments for `sglang serve` or `python -m sglang.launch_server`, one an item.

    Raises ConfigError where the file cannot be used. Values stand as they are in the file; the
    environment is read by the server when it starts.
    """
    from sgkv.config import load

    load(file=path, environ={})
    chosen = ["--enable-hierarchical-cache", "--hicache-storage-backend"]
    if mode == "dynamic":
        return [*chosen, "dynamic", *_extra(json.dumps(_options(path) | DYNAMIC)), "--page-size", "64"]
    return [*chosen, "sgkv", *(_extra(f"@{path.absolute()}") if path else [])]


def print_flags(path: Path | None, mode: Mode) -> int:
    """Print `flags` ready to paste, with advice on standard error. Returns the exit code."""
    from sgkv.cli.config import complain
    from sgkv.config import ConfigError
    from sgkv.config.sources import FILE_VARIABLE

    named = os.environ.get(FILE_VARIABLE)
    path = path or (Path(named) if named else None)
    try:
        typer.echo(" ".join(map(shlex.quote, flags(path, mode))))
    except ConfigError as error:
        return complain(error)
    if mode == "dynamic":
        typer.echo(
            "Keep your own --page-size if it is 16 or more: each page is looked up by itself.", err=True
        )
    return 0


def _options(path: Path | None) -> dict[str, object]:
    from sgkv.config.sources import read_file

    return read_file(path) if path else {}


def _extra(value: str) -> list[str]:
    return ["--hicache-storage-backend-extra-config", value]
