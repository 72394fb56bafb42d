"""Two servers that answer the same prompts, turn and turn about: what one costs in multiples of the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, inf, log, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from sgkv.testing.client import Generation
from sgkv.testing.server import SglangServer


class Cost(NamedTuple):
    """What one prompt took."""

    ttft_s: float
    cpu_s: float
    """Processor time of all processes of the server."""


class Asked(NamedTuple):
    """One prompt, answered by one server."""

    answer: Generation
    cost: Cost


class Pair(NamedTuple):
    """One prompt, answered by both."""

    plain: Asked
    ours: Asked


class Ratio(NamedTuple):
    """Geometric mean of ratios in pairs, which load that comes and goes disturbs on both sides alike."""

    mean: float
    error: float
    """Standard error of `mean`; infinite for a single pair."""

    @classmethod
    def of(cls, ours: Sequence[float], plain: Sequence[float]) -> Ratio:
        logs = [log(mine / other) for mine, other in zip(ours, plain, strict=True)]
        mean = exp(fmean(logs))
        return cls(mean, mean * stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else inf)

    @classmethod
    def of_first_tokens(cls, pairs: Sequence[Pair]) -> Ratio:
        return cls.of([pair.ours.cost.ttft_s for pair in pairs], [pair.plain.cost.ttft_s for pair in pairs])

    @classmethod
    def of_processor_time(cls, pairs: Sequence[Pair]) -> Ratio:
        return cls.of([pair.ours.cost.cpu_s for pair in pairs], [pair.plain.cost.cpu_s for pair in pairs])

    def within(self, bar: float) -> bool | None:
        """Whether it is at most `bar`; None where it is above by less than twice its error."""
        if self.mean <= bar:
            return True
        return None if self.mean - 2 * self.error <= bar else False


def ask_in_turns(
    plain: SglangServer, ours: SglangServer, prompts: Iterable[Sequence[int]], tokens: int = 1
) -> Iterator[Pair]:
    """Have both answer each prompt with so many tokens; who goes first changes with every prompt.

    Between two pairs the caller waits until the servers have done what they do after an answer. The
    first pair pays for what a process does once, so it is not worth counting.
    """
    for number, ids in enumerate(prompts):
        if number % 2:
            first = _ask(plain, ids, tokens)
            yield Pair(first, _ask(ours, ids, tokens))
        else:
            first = _ask(ours, ids, tokens)
            yield Pair(_ask(plain, ids, tokens), first)


def _ask(server: SglangServer, ids: Sequence[int], tokens: int) -> Asked:
    before = server.tree.cpu_seconds()
    answer = server.generate(ids, tokens)
    return Asked(answer, Cost(answer.ttft_s, server.tree.cpu_seconds() - before))
