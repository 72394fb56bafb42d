"""`sgkv s3`: what a bucket can do, what it costs, and how it cleans up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from sgkv.config import ResolvedS3

s3_app = typer.Typer(help="Look at the buckets of a configuration.", no_args_is_help=True)


def _size(text: str) -> int:
    from sgkv.config.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]
TierName = Annotated[
    str | None, typer.Option("--tier", metavar="NAME", help="Which s3 tier; default: the first.")
]


@s3_app.command("probe")
def probe(config: Config = None, tier: TierName = None) -> None:
    """Try what the bucket can do, with one small object; exit code 1 when it cannot serve a tier."""
    from sgkv.cli.s3_runs import print_probe

    raise typer.Exit(print_probe(_bucket(config, tier)))


@s3_app.command("lifecycle")
def lifecycle(config: Config = None, tier: TierName = None) -> None:
    """Print the bucket's lifecycle configuration that goes with `ttl`, as JSON."""
    from sgkv.cli.s3_runs import print_lifecycle

    raise typer.Exit(print_lifecycle(_bucket(config, tier)))


@s3_app.command("cost")
def cost(
    *,
    config: Config = None,
    tier: TierName = None,
    stored: Annotated[int, typer.Option(parser=_size, metavar="SIZE", help="Kept, on average.")],
    written: Annotated[int, typer.Option(parser=_size, metavar="SIZE", help="Written in a month.")],
    read: Annotated[int, typer.Option(parser=_size, metavar="SIZE", help="Read in a month.")],
    blob: Annotated[int, typer.Option(parser=_size, metavar="SIZE", help="Size of a chunk.")] = 8 << 20,
    lookups: Annotated[int, typer.Option(min=0, help="Lookups a month that reach the bucket.")] = 0,
    processes: Annotated[int, typer.Option(min=0, help="Servers' ranks that list the prefix.")] = 1,
) -> None:
    """Estimate a month's bill by the tier's `prices`."""
    from sgkv.backends.s3.costs import Use
    from sgkv.cli.s3_runs import listings_a_month, print_cost

    bucket = _bucket(config, tier)
    if blob <= 0:
        raise typer.BadParameter("a chunk has at least one byte", param_hint="--blob")
    use = Use(stored, written, read, blob, lookups, processes * listings_a_month(bucket))
    raise typer.Exit(print_cost(bucket, use))


def _bucket(config: Path | None, name: str | None) -> ResolvedS3:
    """The tier that was asked for; ends the command where there is none."""
    from sgkv.cli.config import complain
    from sgkv.config import ConfigError, ResolvedS3, load, resolve

    try:
        tiers = resolve(load(file=config).config.embedded).tiers
    except ConfigError as error:
        raise typer.Exit(complain(error)) from error
    buckets = [tier for tier in tiers if isinstance(tier, ResolvedS3) and name in (None, tier.tier.name)]
    return buckets[0] if buckets else _no_bucket(name)


def _no_bucket(name: str | None) -> NoReturn:
    from sgkv.cli.config import USAGE

    typer.echo(f"the configuration has no s3 tier{f' called {name!r}' if name else ''}", err=True)
    raise typer.Exit(USAGE)
