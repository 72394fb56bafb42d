"""The command: every policy, capacity and bandwidth over one trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sgkv.backends.eviction import EvictionPolicy, Lru, Reuse, S3Fifo
from sgkv.replay.caching import Belady, Cached, Clock, play
from sgkv.replay.figures import Figures, FiguresError, load_figures
from sgkv.replay.generate import Mix, generate
from sgkv.replay.serving import Served, Site, enough_engines
from sgkv.replay.trace import Request, TraceError, read_trace, unique_tokens

_USAGE = 2
_GBPS = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Options:
    """What is compared."""

    policies: Sequence[str] = ("none", "always", "lru", "s3fifo", "reuse", "belady")
    """`none` stores nothing, `always` has room for everything."""
    capacities: Sequence[float] = (0.05, 0.1, 0.2)
    """Shares of the bytes of all blocks."""
    gbps: Sequence[float] = (100.0,)
    model: str = "llama-3.1-8b"
    engines: int | None = None
    """None is as many as could compute the trace without a store."""
    part: tuple[float, float] = (0.0, 1.0)
    """Where the replayed requests begin and end, as shares of all: caches are empty at the beginning."""


@dataclass(frozen=True, slots=True)
class Case:
    """One policy, capacity and bandwidth, with the gate on or off."""

    policy: str
    capacity_share: float | None
    capacity_bytes: int | None
    gbps: float
    gate: str
    model: str
    engines: int


@dataclass(frozen=True, slots=True)
class Outcome(Case):
    """What became of it."""

    requests: int
    token_hit_rate: float
    """Tokens of the prompts that were there when they came."""
    token_load_rate: float
    """Tokens of the prompts that were loaded."""
    ttft_p50_s: float
    ttft_p99_s: float
    ttft_mean_s: float
    loaded_bytes: int
    written_bytes: int
    evicted_bytes: int
    loads: int
    declined: int
    """Requests of which the gate had less loaded than was there."""


def run(
    trace: Path | None, mix: str | None, options: Options, json_path: Path | None, figures: Path | None = None
) -> int:
    """Replay a trace or generated traffic and print the outcome. Returns the exit code."""
    console = Console(stderr=True)
    try:
        requests = _part(_requests(trace, mix), *options.part)
        known = load_figures(figures)
        with console.status("replaying ..."):
            outcomes = list(replay(requests, options, known))
    except (TraceError, FiguresError, OSError) as error:
        console.print(str(error), markup=False)
        return _USAGE
    _show(outcomes)
    if json_path is not None:
        rows = {"figures": known.model_dump(), "records": [asdict(outcome) for outcome in outcomes]}
        json_path.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _requests(trace: Path | None, mix: str | None) -> list[Request]:
    if trace is not None and mix is None:
        return read_trace(trace)
    if mix is not None and trace is None:
        return generate(Mix(mix))
    raise TraceError("name a trace, or a mix with --generate, and not both")


def _part(requests: Sequence[Request], begin: float, end: float) -> Sequence[Request]:
    part = requests[round(begin * len(requests)) : round(end * len(requests))]
    if not part:
        raise TraceError(f"no request lies between {begin:.0%} and {end:.0%} of the trace")
    return part


def replay(requests: Sequence[Request], options: Options, figures: Figures) -> Iterator[Outcome]:
    """One outcome a policy, capacity, bandwidth and, where something is loaded, gate."""
    model, unique = figures.model(options.model), unique_tokens(requests)
    engines = options.engines or enough_engines(requests, model)
    asked = sum(request.tokens for request in requests)
    for policy in options.policies:
        for share in options.capacities if policy in _bounded(requests) else (None,):
            cached = _cached(requests, policy, None if share is None else share * unique)
            for gbps in options.gbps:
                site = Site(model, figures.media, gbps * _GBPS, engines)
                for gate in ("off",) if policy == "none" else ("off", "on"):
                    served = site.serve(requests, cached.hits, gated=gate == "on")
                    size = None if share is None else int(share * unique * model.kv_bytes)
                    case = Case(policy, share, size, gbps, gate, options.model, engines)
                    yield _outcome(case, cached, served, asked, model.kv_bytes)


def _bounded(requests: Sequence[Request]) -> dict[str, Callable[[Clock], EvictionPolicy]]:
    """Policies that evict."""
    return {
        "lru": lambda _: Lru(),
        "s3fifo": lambda _: S3Fifo(),
        "reuse": Reuse,
        "belady": lambda _: Belady(requests),
    }


def _cached(requests: Sequence[Request], policy: str, capacity: float | None) -> Cached:
    if policy == "none":
        return Cached([0] * len(requests))
    if policy == "always":
        return play(requests, float("inf"), lambda _: Lru())
    make = _bounded(requests).get(policy)
    if make is None or capacity is None:
        raise TraceError(f"there is no policy {policy!r}; choose from {', '.join(Options().policies)}")
    return play(requests, capacity, make)


def _outcome(case: Case, cached: Cached, served: Served, asked: int, kv_bytes: int) -> Outcome:
    times = sorted(served.ttft)
    return Outcome(
        **asdict(case),
        requests=len(times),
        token_hit_rate=sum(cached.hits) / asked,
        token_load_rate=served.loaded / asked,
        ttft_p50_s=quantile(times, 0.5),
        ttft_p99_s=quantile(times, 0.99),
        ttft_mean_s=sum(times) / len(times),
        loaded_bytes=served.loaded * kv_bytes,
        written_bytes=cached.written * kv_bytes,
        evicted_bytes=cached.evicted * kv_bytes,
        loads=served.loads,
        declined=served.declined,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed."""
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def _show(outcomes: Sequence[Outcome]) -> None:
    table = Table("policy", "capacity", "Gbps", "gate", "token hit rate", "TTFT p50", "p99", "loaded")
    for row in outcomes:
        share = "" if row.capacity_share is None else f"{row.capacity_share:.0%}"
        times = f"{row.ttft_p50_s * 1e3:.0f} ms", f"{row.ttft_p99_s * 1e3:.0f} ms"
        hits, loaded = f"{row.token_hit_rate:.4f}", f"{row.loaded_bytes / 1e12:.2f} TB"
        table.add_row(row.policy, share, f"{row.gbps:g}", row.gate, hits, *times, loaded)
    Console().print(table)
