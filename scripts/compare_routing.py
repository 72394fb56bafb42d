"""Replay a trace through two routers over the same engines, one cache-aware and one that takes turns.

    python -m scripts.compare_routing --trace FILE --config router.yaml [--requests 200] [--block 64]

Every block of the trace becomes `--block` tokens, the same for the same block; the two runs share none, so
that neither finds what the other left. Engines are SGLang's, for their answers say how much was cached.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sgkv.control.serving import in_background
from sgkv.replay.trace import Request, read_trace
from sgkv.router.prompts import PromptReader
from sgkv.router.proxy import make_app
from sgkv.router.settings import RouterSettings, load_settings
from sgkv.testing.client import Generation, SglangClient

POLICIES = ("round_robin", "cache")
_TOKENS = range(2, 258)
"""Ids that every model has."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy made of the requests."""

    hit_rate: float
    """Of prompt tokens."""
    ttft_s: float
    """Mean: a hit more in ten requests matters, and no median shows it."""
    ttft_p99_s: float


def prompts(requests: Sequence[Request], block: int, salt: str) -> list[list[int]]:
    """Token ids in the shape of a trace's requests."""
    return [
        [token for name in request.blocks for token in _block(f"{salt}/{name}", block)]
        for request in requests
    ]


def compare(
    settings: RouterSettings, asked: Callable[[str], Sequence[list[int]]], clients: int
) -> dict[str, Outcome]:
    """What each policy makes of the same prompts; `asked` makes them anew for each.

    Request by request in turn, so that whatever else the machine does strikes both.
    """
    own = {policy: asked(policy) for policy in POLICIES}
    with ExitStack() as stack:
        routers = {
            policy: SglangClient(stack.enter_context(_router(settings, policy))) for policy in POLICIES
        }

        def ask(nth: int) -> dict[str, Generation]:
            return {policy: routers[policy].generate(own[policy][nth], 1) for policy in POLICIES}

        with ThreadPoolExecutor(clients) as pool:
            answers = list(pool.map(ask, range(len(own[POLICIES[0]]))))
    return {policy: _outcome([one[policy] for one in answers]) for policy in POLICIES}


@contextmanager
def _router(settings: RouterSettings, policy: str) -> Iterator[str]:
    import uvicorn

    app = make_app(settings.model_copy(update={"policy": policy}), PromptReader(settings.page_tokens))
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none")
    with in_background(uvicorn.Server(config)) as url:
        yield url


def _outcome(answers: Sequence[Generation]) -> Outcome:
    times = sorted(one.ttft_s for one in answers)
    return Outcome(
        sum(one.cached_tokens for one in answers) / sum(one.prompt_tokens for one in answers),
        statistics.fmean(times),
        times[min(len(times) - 1, len(times) * 99 // 100)],
    )


def _block(name: str, tokens: int) -> list[int]:
    source = random.Random(name)  # noqa: S311 - no secret
    return [source.choice(_TOKENS) for _ in range(tokens)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True, help="The router's.")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--block", type=int, default=64, help="Tokens that stand for a block of the trace.")
    parser.add_argument("--clients", type=int, default=1)
    told = parser.parse_args()
    requests = read_trace(told.trace)[: told.requests]
    outcomes = compare(
        load_settings(told.config), lambda salt: prompts(requests, told.block, salt), told.clients
    )
    table = Table("policy", "hit rate", "mean TTFT", "p99 TTFT")
    for policy, outcome in outcomes.items():
        times = f"{outcome.ttft_s * 1e3:.0f} ms", f"{outcome.ttft_p99_s * 1e3:.0f} ms"
        table.add_row(policy, f"{outcome.hit_rate:.1%}", *times)
    Console().print(table)


if __name__ == "__main__":
    main()
