"""The bar of the gate: hardly worse than the better of always and never, at every bandwidth and length."""

from __future__ import annotations

import pytest

from sgkv.replay.figures import load_figures
from sgkv.replay.run import quantile
from sgkv.replay.serving import Site
from sgkv.replay.trace import Request

FIGURES = load_figures()
GBPS = [1, 2, 4, 8, 16, 24, 32, 48, 64, 100, 128, 200, 400]
LENGTHS = [256 << power for power in range(11)]
REQUESTS = 600


CASES = [
    *(("llama-3.1-8b", gbps) for gbps in GBPS),
    *((model, gbps) for model in ("llama-3.1-70b", "qwen3-480b") for gbps in (1, 48, 400)),
]


def times(site: Site, tokens: int, hit: int, *, gated: bool) -> list[float]:
    """One request at a time: no queue hides or adds anything."""
    count = REQUESTS if gated else 100
    requests = [Request(1e4 * number, tokens, 1, ("block",)) for number in range(count)]
    return sorted(site.serve(requests, [hit] * count, gated=gated).ttft)


@pytest.mark.parametrize(("model", "gbps"), CASES)
def test_it_is_never_much_worse_than_the_better_of_always_and_never(model, gbps) -> None:
    site = Site(FIGURES.model(model), FIGURES.media, gbps * 1e9 / 8, 1)
    for tokens in LENGTHS:
        always = times(site, tokens, tokens, gated=False)
        never = times(site, tokens, 0, gated=False)
        gate = times(site, tokens, tokens, gated=True)
        for share in (0.5, 0.99):
            best = min(quantile(always, share), quantile(never, share))
            assert quantile(gate, share) <= best * 1.03, (tokens, share)


def least_length(model: str, gbps: float) -> int | None:
    """The shortest prompt whose KV is quicker to load than to compute."""
    site = Site(FIGURES.model(model), FIGURES.media, gbps * 1e9 / 8, 1)
    for tokens in LENGTHS:
        one = [Request(0.0, tokens, 1, ("block",))]
        loaded, computed = (site.serve(one, [hit], gated=False).ttft[0] for hit in (tokens, 0))
        if loaded < computed:
            return tokens
    return None


def test_a_faster_link_pays_for_shorter_prompts() -> None:
    for model in FIGURES.models:
        lengths = [least_length(model, gbps) or 1 << 30 for gbps in GBPS]
        assert lengths == sorted(lengths, reverse=True)


def test_the_crossover_of_the_paper() -> None:
    """LMCache: at 32 Gbps only the longest, at 64 and 128 nearly every length; docs/when-to-load.md."""
    slow, fast = least_length("llama-3.1-8b", 16), least_length("llama-3.1-8b", 64)
    assert slow is None or slow >= 64_000
    assert fast is not None
    assert fast <= 4096
