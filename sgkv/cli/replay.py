"""`sgkv replay`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Policy(StrEnum):
    """What is compared."""

    NONE = "none"
    ALWAYS = "always"
    LRU = "lru"
    S3FIFO = "s3fifo"
    REUSE = "reuse"
    BELADY = "belady"


class Traffic(StrEnum):
    """What is made up."""

    CHAT = "chat"
    RAG = "rag"
    AGENT = "agent"


def replay(
    trace: Annotated[
        Path | None, typer.Argument(help="JSON lines as published with Mooncake; see docs/when-to-load.md.")
    ] = None,
    generate: Annotated[
        Traffic | None, typer.Option(help="Made-up traffic in place of a trace, the same each time.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the result here.")
    ] = None,
    policy: Annotated[list[Policy] | None, typer.Option(help="Repeat for several; default: all.")] = None,
    capacity: Annotated[
        list[float] | None,
        typer.Option(min=0.01, max=100, help="Percent of the bytes of all blocks; repeat; default: 5 10 20."),
    ] = None,
    gbps: Annotated[
        list[float] | None, typer.Option(min=0.01, help="Gbit/s of the link; repeat; default: 100.")
    ] = None,
    model: Annotated[str, typer.Option(help="One of the figures'.")] = "llama-3.1-8b",
    engines: Annotated[
        int | None, typer.Option(min=1, help="Default: as many as compute it all without a store.")
    ] = None,
    begin: Annotated[
        float, typer.Option(min=0, max=100, help="Percent of the requests before the first that is replayed.")
    ] = 0,
    end: Annotated[
        float, typer.Option(min=0, max=100, help="Percent of the requests up to the last that is replayed.")
    ] = 100,
    figures: Annotated[
        Path | None, typer.Option(help="Of models and media, in place of the package's own.")
    ] = None,
) -> None:
    """Say what a trace of requests would have gained from a store, by policy, capacity and link."""
    from sgkv.replay.run import Options, run

    usual = Options()
    options = Options(
        policies=[str(one) for one in policy or usual.policies],
        capacities=[percent / 100 for percent in capacity] if capacity else usual.capacities,
        gbps=gbps or usual.gbps,
        model=model,
        engines=engines,
        part=(begin / 100, end / 100),
    )
    raise typer.Exit(run(trace, generate and str(generate), options, json, figures))
