"""Blobs of one kind that were last used at about the same time, and the order in which they go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

_PER_LEVEL = 8
"""Segments of one span and kind; beyond, the two oldest become one of twice the span."""
_COLD = -1
"""Kind of what is older than everything else."""


class Segment:
    """A set of keys with one age."""

    __slots__ = ("born", "holders", "into", "kind", "leaves", "level", "number", "population", "rank")

    def __init__(self, number: int, kind: int, born: float, rank: int) -> None:
        self.number = number
        self.kind = kind
        self.born = born
        """When its blobs were last used, about."""
        self.rank = rank
        """Place in the order of eviction."""
        self.level = 0
        self.population = 0
        """Blobs, with those that may not go and those that went and are remembered."""
        self.leaves: dict[str, None] = {}
        """Blobs that may go."""
        self.holders = 0
        """Blobs that are noted under this number."""
        self.into: Segment | None = None
        """The segment that absorbed this one."""

    def in_order(self) -> Iterable[str]:
        """What may go, the first to go first; of the cold what came last, which is the oldest."""
        return reversed(self.leaves) if self.kind == _COLD else self.leaves

    def absorb(self, younger: Segment) -> None:
        """Take over the blobs of the next younger segment of this kind."""
        total = max(1, self.population + younger.population)
        self.born += (younger.born - self.born) * younger.population / total
        self.population += younger.population
        self.leaves.update(younger.leaves)
        self.level += 1
        younger.into = self


class Segments:
    """All segments, and where each key is.

    Keys hold the number of their segment: a dict of plain numbers is nothing that the garbage collector
    has to look at, however many there are. As in an exponential histogram (Datar, Gionis, Indyk, Motwani
    2002) old segments span more, so that there are few, and a key is moved a logarithmic number of times.
    """

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._by_number: dict[int, Segment] = {}
        """Also such as were absorbed, as long as blobs are noted under their number."""
        self._numbers = count()
        self._young: dict[int, Segment] = {}
        """Of this epoch, by kind."""
        self._ranked: list[Segment] = []
        self._first = 0
        """No segment of lower rank has leaves."""
        self._cold = self._add(_COLD, float("-inf"))

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def __iter__(self) -> Iterator[Segment]:
        """All but the cold one, of which nothing can be learned."""
        return islice(self._ranked, 1, None)

    def of(self, key: str) -> Segment:
        segment = self._by_number[self._at[key]]
        while segment.into is not None:
            segment = segment.into
        return segment

    def is_cold(self, segment: Segment) -> bool:
        return segment is self._cold

    def place(self, key: str, kind: int, now: float, *, cold: bool = False) -> None:
        """Put a key where those are that are used now; it may not go yet."""
        segment = self._cold if cold else self._young.get(kind)
        if segment is None:
            segment = self._young[kind] = self._add(kind, now)
        segment.population += 1
        segment.holders += 1
        self._at[key] = segment.number

    def drop(self, key: str) -> None:
        """Forget a key, which may not be one that may go."""
        self.of(key).population -= 1
        noted = self._by_number[self._at.pop(key)]
        noted.holders -= 1
        if noted.into is not None and not noted.holders:
            del self._by_number[noted.number]

    def show(self, key: str) -> None:
        """Let a key go from now on."""
        segment = self.of(key)
        segment.leaves[key] = None
        self._first = min(self._first, segment.rank)

    def hide(self, key: str) -> bool:
        """Keep a key from going; whether it might have gone."""
        leaves = self.of(key).leaves
        if key not in leaves:
            return False
        del leaves[key]
        return True

    def ranked(self) -> Iterator[Segment]:
        """All that have keys which may go, and more, the first to go first."""
        while self._first < len(self._ranked) and not self._ranked[self._first].leaves:
            self._first += 1
        return islice(self._ranked, self._first, None)

    def rank(self, worth: Callable[[Segment], float]) -> None:
        """Begin an epoch: what is worth least goes first, of equals the oldest."""
        self._young.clear()
        kept = list[Segment]()
        for segment in self._merged():
            if segment.population:
                kept.append(segment)
            else:
                del self._by_number[segment.number]
        kept.sort(key=lambda segment: (worth(segment), segment.born))
        self._ranked = [self._cold, *kept]
        for rank, segment in enumerate(self._ranked):
            segment.rank = rank
        self._first = 0

    def _merged(self) -> list[Segment]:
        groups: defaultdict[tuple[int, int], list[Segment]] = defaultdict(list)
        for segment in self:
            groups[segment.kind, segment.level].append(segment)
        kept: list[Segment] = []
        for group in groups.values():
            if len(group) > _PER_LEVEL:
                group.sort(key=lambda segment: segment.born)
                group[0].absorb(group.pop(1))
            kept += group
        return kept

    def _add(self, kind: int, born: float) -> Segment:
        segment = Segment(next(self._numbers), kind, born, len(self._ranked))
        self._by_number[segment.number] = segment
        self._ranked.append(segment)
        return segment
