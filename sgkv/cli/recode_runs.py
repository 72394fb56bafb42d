"""What `sgkv recode` does."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from sgkv.cli.config import USAGE, complain
from sgkv.codecs.recoding import Recoded, recode
from sgkv.config import ConfigError, load
from sgkv.config.units import approximate_size, parse_size
from sgkv.prewarm.tiers import TierError, TierName, find_tier, opened
from sgkv.store.coded import recipe_of


def run_recode(name: str, config: Path | None, namespace: str, rate: str, *, as_json: bool) -> int:
    """Returns the exit code: 1 where some blobs could not be read or written."""
    try:
        named = TierName.parse(name)
        found = find_tier(named, config)
        recipe, keys = recipe_of(found.tier.codec, load(file=named.file or config).config, found.tier.name)
        limit = float("inf") if rate == "unlimited" else float(parse_size(rate))
        with opened(found, workers=1) as tier, Console(stderr=True).status("looking") as status:
            blobs = list(tier.scan(f"{namespace}/" if namespace else ""))
            done = recode(
                tier, blobs, recipe, keys, bytes_a_second=limit,
                told=lambda so_far: status.update(f"{so_far.looked_at} of {len(blobs)} blobs"),
            )  # fmt: skip
    except ConfigError as error:
        return complain(error)
    except (TierError, OSError, ValueError) as error:
        typer.echo(f"sgkv recode: {error}", err=True)
        return USAGE
    typer.echo(json.dumps(asdict(done)) if as_json else _said(done))
    return int(bool(done.failed or done.damaged))


def _said(done: Recoded) -> str:
    sizes = f"{approximate_size(done.bytes_before)} became {approximate_size(done.bytes_after)}"
    left = f"{done.locked} locked, {done.damaged} damaged, {done.failed} failed"
    return f"{done.looked_at} blobs, {done.rewritten} rewritten: {sizes}; {left}"
