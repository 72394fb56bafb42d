"""How much a run of the benchmarks does, and the order to give up."""

from __future__ import annotations

from dataclasses import dataclass


class BenchError(Exception):
    """A measurement that cannot be made, or whose result would mean nothing."""


@dataclass(frozen=True, slots=True)
class Effort:
    """One dial for sizes and one for repetitions; tests turn both down."""

    scale: float = 1.0
    """Of the full amount of data; figures from below 1.0 are not worth comparing."""
    rounds: int = 9
    """Repetitions behind each median, beside a first one that is thrown away."""

    def of(self, amount: int, least: int = 1) -> int:
        """`amount` at this scale, but not less than `least`."""
        return max(least, round(amount * self.scale))

    def times(self, factor: float) -> int:
        """Repetitions for cases that are cheaper or dearer than most by `factor`."""
        return max(1, round(self.rounds * factor))
