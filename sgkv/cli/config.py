"""`sgkv config show` and `sgkv config validate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sgkv.config import ConfigError, Loaded, ResolvedConfig, ResolvedDisk, load, resolve
from sgkv.config.units import approximate_size

if TYPE_CHECKING:
    from sgkv.cli.app import Format

USAGE = 2
"""Exit code of a command that was given something it cannot use."""


def show(path: Path | None, output: Format) -> int:
    """Print the settings in effect. Returns the exit code."""
    try:
        loaded = load(file=path)
        resolved = resolve(loaded.config)
    except ConfigError as error:
        return complain(error)
    typer.echo(as_json(loaded, resolved) if output == "json" else "\n".join(as_yaml(loaded, resolved)))
    _warn(resolved)
    return 0


def validate(path: Path, *, machine: bool) -> int:
    """Check the file at `path`, by itself or also against this machine. Returns the exit code."""
    try:
        loaded = load(file=path, environ={})
        if machine:
            _warn(resolve(loaded.config))
    except ConfigError as error:
        return complain(error)
    typer.echo(f"{path}: ok")
    return 0


def complain(error: ConfigError) -> int:
    """Print every problem on standard error. Returns the exit code."""
    for problem in error.problems:
        typer.echo(str(problem), err=True)
    return USAGE


def as_json(loaded: Loaded, resolved: ResolvedConfig) -> str:
    """Values, what was decided here, and origins, by field path."""
    values = loaded.config.model_dump(mode="json")
    origins = {path: loaded.origin(path) for path, _ in leaves(values)}
    return json.dumps({"values": values, "resolved": decided(resolved), "origins": origins}, indent=2)


def as_yaml(loaded: Loaded, resolved: ResolvedConfig) -> Iterator[str]:
    """A file that would say the same, with the origin of each value in a comment."""
    notes = {path: _readable(value) for path, value in decided(resolved).items()}
    yield from _yaml(loaded.config.model_dump(mode="json"), "", "", loaded, notes)


def decided(resolved: ResolvedConfig) -> dict[str, int | str]:
    """What `auto` and shares came to, in bytes, by field path."""
    found: dict[str, int | str] = {"write_behind.max_bytes": resolved.write_behind_bytes}
    if resolved.config.mode == "attach":
        found["node.socket"] = str(resolved.socket)
    for index, tier in enumerate(resolved.tiers):
        found[f"tiers.{index}.capacity"] = "no limit" if tier.capacity is None else tier.capacity
        if isinstance(tier, ResolvedDisk):
            found[f"tiers.{index}.path"] = str(tier.path)
            found[f"tiers.{index}.min_free"] = tier.min_free
    return found


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each plain value below `value` with its field path."""
    if isinstance(value, dict):
        children: Iterator[tuple[object, object]] = iter(value.items())
    elif isinstance(value, list):
        children = iter(enumerate(value))
    else:
        yield path, value
        return
    for key, child in children:
        yield from leaves(child, f"{path}.{key}" if path else str(key))


def _yaml(
    value: dict[str, object], path: str, indent: str, loaded: Loaded, notes: dict[str, str]
) -> Iterator[str]:
    for key, child in value.items():
        here = f"{path}{key}"
        if isinstance(child, dict) and child:
            yield f"{indent}{key}:"
            yield from _yaml(child, f"{here}.", f"{indent}  ", loaded, notes)
        elif isinstance(child, list) and any(isinstance(item, dict) for item in child):
            yield f"{indent}{key}:"
            for index, item in enumerate(child):
                lines = list(_yaml(item, f"{here}.{index}.", f"{indent}    ", loaded, notes))
                yield f"{indent}  - {lines[0].lstrip()}"
                yield from lines[1:]
        else:
            yield f"{indent}{key}: {json.dumps(child)}  # {_comment(here, child, loaded, notes)}"


def _comment(path: str, value: object, loaded: Loaded, notes: dict[str, str]) -> str:
    origin = loaded.origin(path)
    open_ended = isinstance(value, str) and (value == "auto" or value.endswith("%"))
    return f"{origin}; here {notes[path]}" if open_ended and path in notes else origin


def _readable(value: int | str) -> str:
    return approximate_size(value) if isinstance(value, int) else value


def _warn(resolved: ResolvedConfig) -> None:
    for line in resolved.warnings:
        typer.echo(f"warning: {line}", err=True)
