"""How fast a running server computes prompts, measured, as the gate's settings have it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx
import numpy as np

from sgkv.decide.prefill import Prefill

LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768)
_TOKENS = range(10, 250)
"""Ids that every model has."""

Ask = Callable[[Sequence[int]], float]
"""Seconds until the first token of a prompt."""


class CalibrationError(Exception):
    """Nothing can be concluded; the text says why."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found."""

    seconds: Mapping[int, float]
    """Least time to first token by prompt length: what else the machine does only ever adds to it."""
    prefill: Prefill
    overhead: float
    """Seconds that a prompt takes whatever its length."""

    @property
    def worst(self) -> float:
        """By how much the fit misses a measured time, relative, where it misses most."""
        fitted = {n: self.overhead + self.prefill.seconds(n) for n in self.seconds}
        return max(abs(fitted[n] - took) / took for n, took in self.seconds.items())


def calibrate(
    ask: Ask, lengths: Sequence[int], repeats: int = 3, told: Callable[[int], None] = lambda _length: None
) -> Measured:
    """Prompts of random tokens, so that no cache knows them, one at a time. Raises CalibrationError.

    `told` of each length before it is measured. Lengths that the server refuses are left out.
    """
    source = random.Random()  # noqa: S311 - other prompts in each run, and no secret
    took: dict[int, float] = {}
    for length in sorted(lengths):
        told(length)
        try:
            times = [ask([source.choice(_TOKENS) for _ in range(length)]) for _ in range(repeats + 1)]
        except httpx.HTTPStatusError:  # longer than the model's context, most likely
            break
        took[length] = min(times)  # the first may compile something
    return fit(took)


def fit(seconds: Mapping[int, float]) -> Measured:
    """Overhead, rate and the length at which that is half, from times by length. Raises CalibrationError."""
    if len(seconds) < 3:
        raise CalibrationError(f"{len(seconds)} lengths were answered, and it takes 3: is the server well?")
    lengths = np.array(sorted(seconds), float)
    times = np.array([seconds[int(n)] for n in lengths])
    # Relative errors count: a second more of ten matters less than a tenth more of a tenth.
    columns = np.stack([np.ones_like(lengths), lengths, lengths**2], 1)
    overhead, linear, square = _positive(columns, times)
    if linear <= 0:  # short prompts on a busy machine: what grows at all is taken to grow evenly
        overhead, linear = _positive(columns[:, :2], times)
        square = 0.0
    if linear <= 0:
        raise CalibrationError("longer prompts take no longer: something answers from a cache")
    half = linear / square if square > 0 else 1e9
    return Measured(dict(seconds), Prefill(1 / linear, half), overhead)


def _positive(columns: np.ndarray, times: np.ndarray) -> list[float]:
    """Least squares without negative terms: what would be is left out."""
    used = list(range(columns.shape[1]))
    while used:
        weighed = columns[:, used] / times[:, None]
        found, *_ = np.linalg.lstsq(weighed, np.ones(len(times)), rcond=None)
        worst = int(np.argmin(found))
        if found[worst] >= 0:
            return [float(found[used.index(at)]) if at in used else 0.0 for at in range(columns.shape[1])]
        del used[worst]
    return [0.0] * columns.shape[1]


def asking(client: httpx.Client, model: str) -> Ask:
    """Through an API like OpenAI's, by token ids: what SGLang and vLLM serve."""

    def ask(tokens: Sequence[int]) -> float:
        body = {"model": model, "prompt": list(tokens), "max_tokens": 1, "stream": True, "temperature": 0}
        began = time.perf_counter()
        with client.stream("POST", "/v1/completions", json=body) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    return time.perf_counter() - began
        raise CalibrationError("the server ended an answer without a token")

    return ask


def served_model(client: httpx.Client) -> str:
    """The first model that a server says it has. Raises httpx.HTTPError and CalibrationError."""
    answer = client.get("/v1/models")
    answer.raise_for_status()
    models = answer.json().get("data") or []
    if not models:
        raise CalibrationError("the server serves no model")
    return str(models[0]["id"])
