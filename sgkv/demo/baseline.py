"""Does storage make a cold prompt slower? SGLang with and without it, turn and turn about."""

from __future__ import annotations

from pathlib import Path

from sgkv.demo.engine import Model, plain_server, prompt, traffic, wait_until_on_disk
from sgkv.demo.results import Baseline, Cost
from sgkv.testing.server import SglangServer

FIRST_SEED = 1000


def measure_baseline(stored: SglangServer, model: Model, logs: Path, prompts: int) -> Baseline:
    """Time `prompts` unseen prompts on each of `stored` and a server of SGLang alone.

    Both answer the same prompts; who goes first changes with every prompt, and neither starts before
    the bytes of the last prompt are on disk. One more prompt, not counted, warms both up.
    """
    costs: dict[str, list[Cost]] = {"plain": [], "sgkv": []}
    with plain_server(model, logs) as plain:
        servers = [("plain", plain), ("sgkv", stored)]
        for number in range(prompts + 1):
            before = traffic(stored)
            for name, server in servers if number % 2 else reversed(servers):
                costs[name].append(_cost(server, FIRST_SEED + number))
            wait_until_on_disk(stored, model, before)
    return Baseline(costs["plain"][1:], costs["sgkv"][1:])


def _cost(server: SglangServer, seed: int) -> Cost:
    before = server.tree.cpu_seconds()
    answer = server.generate(prompt(seed), 1)
    return Cost(answer.ttft_s, server.tree.cpu_seconds() - before)
