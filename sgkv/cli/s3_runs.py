"""What the commands of `sgkv s3` do."""

from __future__ import annotations

import json
from dataclasses import replace

import typer
from rich.console import Console
from rich.table import Table

from sgkv.backends.s3 import S3Backend
from sgkv.backends.s3.costs import Prices, Use, bill
from sgkv.backends.s3.lifecycle import lifecycle_rules
from sgkv.cli.config import USAGE
from sgkv.config import ResolvedS3
from sgkv.store.buckets import s3_options

_MONTH = 30 * 86_400.0


def print_probe(bucket: ResolvedS3) -> int:
    """Returns the exit code: 1 where the tier would serve nothing, 2 where it cannot even be tried."""
    tier = bucket.tier
    try:
        backend = S3Backend(replace(s3_options(tier), examine=False, list_seconds=None), name=tier.name)
    except (ValueError, OSError) as error:
        typer.echo(f"tier {tier.name!r} cannot be opened: {error}", err=True)
        return USAGE
    try:
        report = backend.examine()
    finally:
        backend.close()
    table = Table(title=f"{tier.name}: {tier.bucket} at {tier.endpoint or 'AWS'}", title_justify="left")
    for column in ("", "", "found"):
        table.add_column(column)
    for finding in report.findings:
        table.add_row(finding.what, _mark(able=finding.able, needed=finding.needed), finding.detail)
    Console().print(table)
    typer.echo("usable" if report.usable else "NOT usable as a tier")
    return 0 if report.usable else 1


def print_lifecycle(bucket: ResolvedS3) -> int:
    """Returns the exit code."""
    tier = bucket.tier
    if bucket.ttl is None:
        typer.echo("warning: ttl is not set: nothing expires", err=True)
    elif not tier.prefix:
        typer.echo("warning: prefix is empty: the rule removes other objects of the bucket, too", err=True)
    typer.echo(json.dumps(lifecycle_rules(tier.prefix, bucket.ttl), indent=2))
    typer.echo(
        "put it into FILE and run: aws s3api put-bucket-lifecycle-configuration "
        f"--bucket {tier.bucket} --lifecycle-configuration file://FILE",
        err=True,
    )
    return 0


def print_cost(bucket: ResolvedS3, use: Use) -> int:
    """Returns the exit code."""
    lines = bill(use, Prices(**bucket.tier.prices.model_dump()))
    table = Table(title=f"{bucket.tier.bucket}: a month", title_justify="left", show_footer=True)
    table.add_column("", footer="total")
    table.add_column("amount", justify="right")
    table.add_column("price", justify="right", footer=f"{sum(line.price for line in lines):,.2f}")
    for line in lines:
        table.add_row(line.what, line.amount, f"{line.price:,.2f}")
    Console().print(table)
    return 0


def listings_a_month(bucket: ResolvedS3) -> int:
    """Of one process."""
    pause = bucket.tier.list_every
    return 0 if pause is None else int(_MONTH / pause)


def _mark(*, able: bool, needed: bool) -> str:
    return "yes" if able else "NO, and needed" if needed else "no"
