"""What `sgkv why-miss` and `sgkv divergence` do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from sgkv.cli.config import USAGE, complain
from sgkv.cli.control_runs import prompt_of
from sgkv.config import ConfigError, ResolvedCpu, load, resolve
from sgkv.inspect.divergence import divergences, summarise
from sgkv.inspect.missing import Finding, Prompt, Sizes, trace
from sgkv.prewarm.tiers import TierError, TierName, find_tier, opened


def run_why_miss(
    file: Path, config: Path | None, model: Path | None, namespace: str, page_tokens: int, *, as_json: bool
) -> int:
    """Returns the exit code: 1 where no tier has all of it."""
    try:
        prompt = _prompt(file, model)
        configured = resolve(load(file=config).config.embedded)
        tiers = [one for one in configured.tiers if not isinstance(one, ResolvedCpu)]
        sizes = Sizes(page_tokens, configured.config.chunk_tokens)
        found: list[Finding] = []
        for one in tiers:
            with opened(find_tier(TierName(one.tier.name), config), workers=1) as tier:
                found += trace(tier, one.tier.name, prompt, sizes, namespace)
    except ConfigError as error:
        return complain(error)
    except (TierError, OSError, ValueError, ImportError) as error:
        typer.echo(f"sgkv why-miss: {error}", err=True)
        return USAGE
    if as_json:
        rows = [{**asdict(one), "verdict": one.verdict} for one in found]
        typer.echo(json.dumps({"findings": rows}, indent=2))
    else:
        _show(found)
    return int(not any(one.pages and one.leading == one.pages for one in found))


def run_divergence(file: Path, *, as_json: bool) -> int:
    """Returns the exit code."""
    try:
        found = list(divergences(_prompts(file)))
    except (OSError, ValueError) as error:
        typer.echo(f"sgkv divergence: {error}", err=True)
        return USAGE
    total = summarise(found)
    if as_json:
        rows = [{**asdict(one), "lost": one.lost} for one in found]
        typer.echo(json.dumps({"summary": asdict(total), "prompts": rows}, indent=2))
        return 0
    for one in found:
        if one.lost:
            typer.echo(
                f"prompt {one.index}: {one.kind} beside prompt {one.like}: {one.prefix} tokens can be "
                f"reused, {one.lost} more were computed before and moved by {one.moved}"
            )
    typer.echo(
        f"{total.prompts} prompts, {total.tokens} tokens: {total.reusable} in prefixes seen before, "
        f"{total.lost} seen before and lost"
    )
    return 0


def _prompt(file: Path, model: Path | None) -> Prompt:
    if model is None:
        told = prompt_of(file)
        return Prompt(**{kind: tuple(values) for kind, values in told.items()})
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    return Prompt(tokens=tuple(tokenizer.encode(file.read_text())))


def _prompts(file: Path) -> Iterator[list[int]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                tokens = json.loads(line)
                if not isinstance(tokens, list) or not all(type(one) is int for one in tokens):
                    raise ValueError(f"{file}:{number} is no list of token ids")
                yield tokens


def _show(found: Sequence[Finding]) -> None:
    if not found:
        typer.echo("no tier holds anything of sgkv's")
    for one in found:
        typer.echo(f"{one.tier}  {one.namespace}  {one.leading} of {one.pages} pages: {one.verdict}")
        if one.says.get("producer"):
            says = one.says
            typer.echo(
                f"    stored by {says['producer']}: {says['dtype']}, {says['page_tokens']} tokens a page"
            )
