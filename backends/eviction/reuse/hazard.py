"""How likely a blob that was not used for so long is to be used next, learned for each kind of blob.

What is worth keeping is measured by the Gittins index of a blob's age: the largest ratio, over all times
that one might wait, of the chance of a use within that time to the time that the blob takes up room until
the use or the end of the wait. It is the rule that is optimal for independent jobs (Gittins 1979; Aalto,
Ayesta, Righter 2009 for its form by age), and what Beckmann, Chen, Cidon call hit density (LHD, NSDI 2018)
with the best moment to give up in place of the one that happened. Where use only becomes less likely with
age it is LRU; where blobs are used again after about a minute, or never, it is not.
"""

from __future__ import annotations

from itertools import pairwise
from math import log2
from operator import mul

_STEPS = 3
"""Age classes an octave."""
_FIRST = 0.25
"""Seconds: younger is as young as that."""
_AGES = 24 * _STEPS
"""Up to 48 days; older is as old as that."""
_EDGES = [0.0, *(_FIRST * 2 ** (step / _STEPS) for step in range(1, _AGES + 1))]
_WIDTHS = [after - before for before, after in pairwise(_EDGES)]
_BELIEF = 20.0
"""Uses that a kind must have shown to count as much as what all kinds show."""
_FIRST_BELIEF = 1.0
"""The same for all kinds together, against what is assumed before anything was seen."""
_DECAY = 2.0
"""Power of the age by which use becomes less likely where nothing was seen: LRU, to begin with."""


def age_class(age: float) -> int:
    """Index of the class of an age in seconds."""
    return min(_AGES - 1, int(log2(age / _FIRST) * _STEPS)) if age > _FIRST else 0


class Hazard:
    """Uses, and the seconds in which there might have been some, by age class."""

    def __init__(self) -> None:
        self.uses = [0.0] * _AGES
        self.exposure = [0.0] * _AGES
        """Blob seconds, of evicted blobs too as long as they are remembered."""

    def fade(self, factor: float) -> None:
        """Let the past count less."""
        self.uses = [factor * value for value in self.uses]
        self.exposure = [factor * value for value in self.exposure]

    def shape(self) -> list[float]:
        """Uses a second at each age; where nothing was seen, by what was seen of younger blobs."""
        rate, rates = 1 / _FIRST, list[float]()
        for at, (before, edge) in enumerate(pairwise([_FIRST, *_EDGES[1:]])):
            rate *= (before / edge) ** _DECAY
            rate = (self.uses[at] + _FIRST_BELIEF) / (self.exposure[at] + _FIRST_BELIEF / rate)
            rates.append(rate)
        return rates

    def rates(self, shape: list[float]) -> list[float]:
        """Uses a second at each age; where little was seen those of `shape`, raised or lowered to
        the level of this kind.
        """
        expected = sum(map(mul, self.exposure, shape))
        level = (sum(self.uses) + _BELIEF) / (expected + _BELIEF)
        return [
            (uses + _BELIEF) / (exposure + _BELIEF / (level * rate))
            for uses, exposure, rate in zip(self.uses, self.exposure, shape, strict=True)
        ]


def worth_by_age(rates: list[float]) -> list[float]:
    """The index at the begin of each age class, in uses a second of room taken up.

    With F the chance of a use before an age and M the time in which room was taken up until then, it is
    the largest slope from (M, F) at this age to a later one. One pass from the right over the upper hull
    finds all of them.
    """
    points = _curve(rates)
    worth = [0.0] * _AGES
    hull = [points[-1]]
    for age in range(_AGES - 1, -1, -1):
        here = points[age]
        while len(hull) > 1 and _slope(here, hull[-2]) >= _slope(here, hull[-1]):
            hull.pop()
        worth[age] = _slope(here, hull[-1])
        hull.append(here)
    return worth


def _curve(rates: list[float]) -> list[tuple[float, float]]:
    """(M, F) at the edges of the age classes."""
    held, left = 0.0, 1.0
    points = [(held, 0.0)]
    for rate, width in zip(rates, _WIDTHS, strict=True):
        stays = 1 / (1 + rate * width)
        held += left * stays * width
        left *= stays
        points.append((held, 1 - left))
    return points


def _slope(start: tuple[float, float], end: tuple[float, float]) -> float:
    width = end[0] - start[0]
    return (end[1] - start[1]) / width if width > 0 else 0.0
