"""Time by the clock and time of the processors, and how two series of them compare."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Cost(NamedTuple):
    """What a piece of work took."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of processor time, over all threads of this process."""


@contextmanager
def settled_heap() -> Iterator[None]:
    """Inside, Python's garbage collector looks only at what is made inside.

    A full collection walks every object of every imported module: with SGLang and torch a tenth of a
    second, which would hit whoever happens to allocate.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def cost_of(work: Callable[[], object]) -> Cost:
    """Run `work` once."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


@dataclass(frozen=True, slots=True)
class Series:
    """The costs of one operation of one contender, one a round.

    A figure by itself is the median, and so are CPU times that are compared. Times by the clock are
    compared by their lower quartiles: what else the machine does only ever adds to them.
    """

    costs: Sequence[Cost]

    @property
    def wall(self) -> float:
        """Seconds."""
        return median(cost.wall for cost in self.costs)

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        return median(cost.cpu for cost in self.costs)

    @property
    def p99(self) -> float:
        """Seconds that one in a hundred took longer than."""
        walls = [cost.wall for cost in self.costs]
        return quantiles(walls, n=100, method="inclusive")[98]

    def speed_over(self, other: Series) -> float:
        """How many times as fast as `other`."""
        return other._quick / self._quick

    def cpu_over(self, other: Series) -> float:
        """CPU time in multiples of `other`'s."""
        return self.cpu / other.cpu

    def wall_beyond(self, other: Series) -> float:
        """Seconds more than `other` took."""
        return self._quick - other._quick

    @property
    def _quick(self) -> float:
        walls = [cost.wall for cost in self.costs]
        return quantiles(walls, n=4, method="inclusive")[0] if len(walls) > 1 else walls[0]


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    prepare: Callable[[str], object] = lambda name: None,
) -> dict[str, Series]:
    """Repeat all contenders in turn, so that whatever else the machine does hits all of them alike.

    `prepare` is called with the name of each before its turn, off the clock. The first round warms up
    and is not counted.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    with settled_heap():
        for at in range(rounds + 1):
            for name in in_turn(list(contenders), at):
                prepare(name)
                costs[name].append(cost_of(contenders[name]))
    return {name: Series(series[1:]) for name, series in costs.items()}


def in_turn(items: Sequence[T], at: int) -> Sequence[T]:
    """The order of a round: each starts with another one, and the others come forwards and backwards.

    So nobody always follows the same one, whose work a server may not have finished.
    """
    first, *others = rotated(items, at)
    return [first, *(reversed(others) if at % 2 else others)]


def rotated(items: Sequence[T], by: int) -> Sequence[T]:
    """The same items, beginning with another one."""
    first = by % len(items)
    return [*items[first:], *items[:first]]
