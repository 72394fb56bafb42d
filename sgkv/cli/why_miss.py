"""`sgkv why-miss` and `sgkv divergence`: where a prompt's KV ends, and why prompts do not share more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML, TOML or JSON; default: $SGKV_CONFIG.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def why_miss(
    prompt: Annotated[
        Path, typer.Argument(help='JSON: a list of token ids, or of page hashes; "-" is stdin. See --text.')
    ],
    config: Config = None,
    *,
    text: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="PROMPT is text, for the tokenizer in this folder.")
    ] = None,
    namespace: Annotated[str, typer.Option(metavar="DIGEST", help="Only this one.")] = "",
    page_tokens: Annotated[int, typer.Option(min=1, help="Where blobs are coded and do not say it.")] = 64,
    json: Json = False,
) -> None:
    """Say how much of a prompt each tier below memory has, in which namespace, and where it ends and why."""
    from sgkv.cli.why_miss_runs import run_why_miss

    raise typer.Exit(run_why_miss(prompt, config, text, namespace, page_tokens, as_json=json))


def divergence(
    prompts: Annotated[Path, typer.Argument(help="JSON lines: a list of token ids each, in their order.")],
    *,
    json: Json = False,
) -> None:
    """Say where prompts leave those before them: what moved, was cut off or reordered, and is lost."""
    from sgkv.cli.why_miss_runs import run_divergence

    raise typer.Exit(run_divergence(prompts, as_json=json))
