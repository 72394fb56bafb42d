"""Made-up traffic of three kinds, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import count
from random import Random

from sgkv.replay.trace import BLOCK_TOKENS, Request


class Mix(StrEnum):
    """What the traffic is like."""

    CHAT = "chat"
    """Conversations behind a common system prompt; the next turn comes after somebody has read and typed."""
    RAG = "rag"
    """Questions about documents, of which a few are asked about most."""
    AGENT = "agent"
    """Tasks of many short steps within seconds, each with the last one's output."""


def generate(mix: Mix, requests: int = 4000, seed: int = 0) -> list[Request]:
    """Requests over about an hour, by time."""
    random, numbers = Random(f"{mix} {seed}"), count()  # noqa: S311 - traffic, no secret
    make = {Mix.CHAT: _chat, Mix.RAG: _rag, Mix.AGENT: _agent}[mix]
    made, stream = list[Request](), make(random, numbers)
    while len(made) < requests:
        made.append(next(stream))
    span = max(request.at for request in made)
    return sorted(
        (Request(r.at / span * 3600, r.tokens, r.output, r.blocks) for r in made), key=lambda r: r.at
    )


def _chat(random: Random, numbers: Iterator[int]) -> Iterator[Request]:
    systems = [_fresh(numbers, random.randint(1, 4)) for _ in range(4)]
    for begins in _arrivals(random, 1.0):
        at, blocks = begins, [*random.choice(systems), *_fresh(numbers, _long_tailed(random, 4))]
        while True:
            yield _request(random, at, blocks)
            if random.random() < 0.45:
                break
            at += random.lognormvariate(4.3, 0.8)  # a minute or so
            blocks += _fresh(numbers, _long_tailed(random, 2))


def _rag(random: Random, numbers: Iterator[int]) -> Iterator[Request]:
    system = _fresh(numbers, 2)
    documents = [_fresh(numbers, random.randint(4, 40)) for _ in range(600)]
    weights = [1 / (rank + 1) ** 0.8 for rank in range(len(documents))]
    for at in _arrivals(random, 1.0):
        (document,) = random.choices(documents, weights)
        yield _request(random, at, [*system, *document, *_fresh(numbers, 1)])


def _agent(random: Random, numbers: Iterator[int]) -> Iterator[Request]:
    tools = [_fresh(numbers, random.randint(6, 16)) for _ in range(3)]
    for begins in _arrivals(random, 12.0):
        at, blocks = begins, [*random.choice(tools), *_fresh(numbers, _long_tailed(random, 3))]
        for _ in range(1 + int(random.expovariate(1 / 12))):
            yield _request(random, at, blocks)
            at += random.lognormvariate(1.6, 0.7)  # seconds
            blocks += _fresh(numbers, random.randint(1, 3))


def _arrivals(random: Random, seconds: float) -> Iterator[float]:
    at = 0.0
    while True:
        at += random.expovariate(1 / seconds)
        yield at


def _fresh(numbers: Iterator[int], blocks: int) -> list[str]:
    return [str(next(numbers)) for _ in range(blocks)]


def _long_tailed(random: Random, median: int) -> int:
    return max(1, min(200, round(random.lognormvariate(0, 1) * median)))


def _request(random: Random, at: float, blocks: list[str]) -> Request:
    """The last block is not full, so that what follows it makes another one of it."""
    last = random.randint(1, BLOCK_TOKENS - 1)
    names = (*blocks, f"{blocks[-1]}+{at:.6f}")
    return Request(at, BLOCK_TOKENS * len(blocks) + last, random.randint(50, 800), names)
