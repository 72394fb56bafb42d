"""Does storage make a cold prompt slower? SGLang with and without it, turn and turn about."""

from __future__ import annotations

from pathlib import Path

from sgkv.demo.engine import Model, plain_server, prompt, traffic, wait_until_on_disk
from sgkv.demo.results import Baseline
from sgkv.testing.pairs import Pair, ask_in_turns
from sgkv.testing.server import SglangServer

FIRST_SEED = 1000


def measure_baseline(stored: SglangServer, model: Model, logs: Path, prompts: int) -> Baseline:
    """Time `prompts` unseen prompts on each of `stored` and a server of SGLang alone."""
    with plain_server(model, logs) as plain:
        pairs = cold_pairs(plain, stored, model, prompts)
    return Baseline([pair.plain.cost for pair in pairs], [pair.ours.cost for pair in pairs])


def cold_pairs(
    plain: SglangServer, stored: SglangServer, model: Model, prompts: int, first_seed: int = FIRST_SEED
) -> list[Pair]:
    """So many prompts that neither has seen, each answered by both; `stored` has sgkv with a disk tier.

    Neither starts before the bytes of the last prompt are on disk. One more prompt, not counted, warms
    both up.
    """
    pairs, before = [], traffic(stored)
    seeds = range(first_seed, first_seed + prompts + 1)
    for pair in ask_in_turns(plain, stored, map(prompt, seeds)):
        wait_until_on_disk(stored, model, before)
        before = traffic(stored)
        pairs.append(pair)
    return pairs[1:]
