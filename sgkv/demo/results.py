"""What the demo measured: as a table, as JSON and as a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from sgkv.testing.client import Generation
from sgkv.testing.pairs import Cost, Ratio

REQUIRED_SHARE = 0.9
"""Of its full pages, what an engine must find in the store after it was killed."""
COLD_BAR = 1.03
"""How much longer a cold prompt may take than on SGLang without storage."""

Traffic = Counter[tuple[str, str]]
"""Bytes by (``read`` or ``written``, tier of sgkv)."""


@dataclass(frozen=True, slots=True)
class Run:
    """The prompt answered once."""

    name: str
    answer: Generation
    full_page_tokens: int
    equal_output: bool
    """Same token ids and log-probabilities as the cold run."""
    traffic: Traffic

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "prompt_tokens": self.answer.prompt_tokens,
            "cached_tokens": self.answer.cached_tokens,
            "full_page_tokens": self.full_page_tokens,
            "cached_by_tier": dict(self.answer.cached_by_tier),
            "ttft_s": self.answer.ttft_s,
            "equal_output": self.equal_output,
        }


@dataclass(frozen=True, slots=True)
class Baseline:
    """Cold prompts on SGLang without storage and with sgkv, in pairs."""

    plain: Sequence[Cost]
    sgkv: Sequence[Cost]

    def as_json(self) -> dict[str, Any]:
        """Medians in seconds, and ratios over the pairs; `ok` null says that the machine is too restless."""
        (plain, plain_cpu), (ours, ours_cpu) = (
            list(zip(*costs, strict=True)) for costs in (self.plain, self.sgkv)
        )
        ratio, cpu_ratio = Ratio.of(ours, plain), Ratio.of(ours_cpu, plain_cpu)
        return {
            "prompts": len(self.plain),
            "plain_ttft_s": median(plain),
            "sgkv_ttft_s": median(ours),
            "ratio": ratio.mean,
            "ratio_error": ratio.error if isfinite(ratio.error) else None,
            "cpu_ratio": cpu_ratio.mean,
            "bar": COLD_BAR,
            "ok": ratio.within(COLD_BAR),
        }

    def summary(self) -> str:
        """One line."""
        found = self.as_json()
        error = "unknown" if found["ratio_error"] is None else f"{found['ratio_error']:.3f}"
        return (
            "{prompts} unseen prompts: first token after {sgkv_ttft_s:.2f} s with sgkv and "
            "{plain_ttft_s:.2f} s without storage, {ratio:.3f} of it (standard error {error}, bar {bar}); "
            "processor time {cpu_ratio:.3f}"
        ).format(**found | {"error": error})


def as_json(engine: str, runs: Sequence[Run], baseline: Baseline | None) -> dict[str, Any]:
    """The content of the ``--json`` file."""
    moved = {run.name: {f"{verb}_{tier}": n for (verb, tier), n in run.traffic.items()} for run in runs}
    return {
        "engine": engine,
        "runs": [run.as_json() for run in runs],
        "bytes_moved": moved,
        "baseline": baseline.as_json() if baseline else None,
    }


def complaints(runs: Sequence[Run]) -> list[str]:
    """What makes the demo a failure; empty when all is well."""
    found = [
        f"the {run.name} run answered differently from the cold one" for run in runs if not run.equal_output
    ]
    for run in runs:
        least = REQUIRED_SHARE * run.full_page_tokens
        if run.name == "restarted" and run.answer.cached_tokens < least:
            cached = run.answer.cached_tokens
            found.append(f"the restarted engine found {cached} of {run.full_page_tokens} full-page tokens")
    return found


def as_table(engine: str, runs: Sequence[Run]) -> Table:
    """Fits 80 columns."""
    cold = runs[0].answer.ttft_s
    title = f"One prompt on {engine}, first token against the cold run's"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run")
    for heading in ("prompt\ntokens", "cached\ntokens", "by tier", "first\ntoken", "faster", "bytes moved"):
        table.add_column(heading, justify="right")
    table.add_column("equal\noutput")
    for run in runs:
        answer = run.answer
        table.add_row(
            run.name,
            str(answer.prompt_tokens),
            str(answer.cached_tokens),
            _by_tier(answer.cached_by_tier),
            f"{answer.ttft_s:.2f} s",
            f"{cold / answer.ttft_s:.1f}x",
            _moved(run.traffic),
            "yes" if run.equal_output else "[bold red]no",
        )
    return table


def _by_tier(cached: Mapping[str, int]) -> str:
    held = {tier: tokens for tier, tokens in cached.items() if tokens}
    if len(held) == 1:
        return next(iter(held))
    return "\n".join(f"{tokens} {tier}" for tier, tokens in held.items()) or "-"


def _moved(traffic: Traffic) -> str:
    ways = {"read": "from", "written": "to"}
    rows = (
        f"{nbytes / 2**20:.1f} MiB {ways[verb]} {tier}" for (verb, tier), nbytes in sorted(traffic.items())
    )
    return "\n".join(rows) or "-"
