"""How long an engine takes to compute what it does not load."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prefill:
    """Seconds of prefill by length: linear layers cost every token the same, attention later ones more.

    The rate at a length of n tokens is `tokens_s / (1 + n / half_length)`, over the whole prompt.
    """

    tokens_s: float
    """Tokens a second of a short prompt."""
    half_length: float = float("inf")
    """Tokens at which the rate over the whole prompt is half of that."""

    def __post_init__(self) -> None:
        if self.tokens_s <= 0 or self.half_length <= 0:
            raise ValueError(f"a rate and a length are positive, got {self.tokens_s} and {self.half_length}")

    def seconds(self, tokens: int, after: int = 0) -> float:
        """Of computing `tokens` more where the KV of `after` tokens is there."""
        return self._whole(after + tokens) - self._whole(after)

    def _whole(self, tokens: int) -> float:
        return tokens / self.tokens_s * (1 + tokens / self.half_length)
