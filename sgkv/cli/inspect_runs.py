"""What `sgkv inspect` does."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from sgkv.backends.base import GetItem, Part, Status
from sgkv.cli.config import USAGE, complain
from sgkv.config import ConfigError
from sgkv.config.units import approximate_size
from sgkv.inspect.blob import describe
from sgkv.inspect.holdings import Holding, expired, holdings, total
from sgkv.prewarm.tiers import TierError, TierName, find_tier, opened

_LARGEST = 8 << 30


def show_tier(name: str, config: Path | None, namespace: str, *, as_json: bool) -> int:
    """Returns the exit code."""
    try:
        found = find_tier(TierName.parse(name), config)
        with opened(found, workers=1) as tier, Console(stderr=True).status("listing") as status:
            prefix = f"{namespace}/" if namespace else ""
            held, foreign = holdings(tier, prefix, lambda blobs: status.update(f"listing: {blobs} blobs"))
    except ConfigError as error:
        return complain(error)
    except (TierError, OSError) as error:
        typer.echo(str(error), err=True)
        return USAGE
    if as_json:
        typer.echo(
            json.dumps({"namespaces": [asdict(one) for one in held], "foreign_blobs": foreign}, indent=2)
        )
    else:
        _print(held, foreign)
    return 0


def show_blob(name: str, key: str | None, config: Path | None, *, as_json: bool) -> int:
    """Returns the exit code: 1 where the blob is damaged, 2 where there is none."""
    try:
        raw = Path(name).read_bytes() if key is None else _read(name, key, config)
    except ConfigError as error:
        return complain(error)
    except (TierError, OSError) as error:
        typer.echo(str(error), err=True)
        return USAGE
    facts = describe(memoryview(raw))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        for fact, value in facts.items():
            typer.echo(f"{fact:<18} {_shown(fact, value)}")
    return int(bool(facts["flaw"]))


def _read(name: str, key: str, config: Path | None) -> bytes:
    """Raises TierError where the blob is not there, or cannot be read."""
    with opened(find_tier(TierName.parse(name), config), workers=1) as tier:
        sizes = {blob.key: blob.size for blob in tier.scan(key)}
        if key not in sizes:
            raise TierError(f"{name} has no blob {key}")
        raw = bytearray(min(sizes[key], _LARGEST))
        (status,) = tier.get([GetItem(key, [Part(0, memoryview(raw))])])
        if status is not Status.OK:
            raise TierError(f"{key} cannot be read: {status.value}")
    return bytes(raw)


def _print(held: Sequence[Holding], foreign: int) -> None:
    table = Table(title_justify="left", show_footer=True)
    table.add_column("namespace", no_wrap=True)
    table.add_column("chunks", justify="right")
    table.add_column("pages", justify="right")
    table.add_column("bytes", justify="right", footer=approximate_size(total(held)))
    table.add_column("newest", justify="right")
    table.add_column("what")
    for one in held:
        size = approximate_size(one.bytes)
        table.add_row(one.namespace, str(one.chunks), str(one.pages), size, _age(one.newest), _what(one))
    Console().print(table)
    if foreign:
        typer.echo(f"{foreign} blobs are none of sgkv's")


def _what(holding: Holding) -> str:
    says = holding.says
    if not says or says.get("coded"):
        return "coded" if says else "unreadable"
    shape = f"{says['layers']} layers, {says['heads']} heads, {says['page_tokens']} tokens a page"
    return f"{says['producer']}: {says['dtype']}, {shape}{', expired' if expired(holding) else ''}"


def _shown(fact: str, value: Any) -> str:
    if fact.endswith("_at"):
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value)) if value else "never"
    if fact == "flaw":
        return value or "none: every checksum matches"
    return str(value)


def _age(moment: float) -> str:
    if not moment:
        return ""
    seconds = max(0, int(time.time() - moment))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
