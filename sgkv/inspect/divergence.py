"""Where prompts leave each other: what was said before, and cannot be reused because it moved.

A prefix is reused up to the first token that differs. Applications that drop the oldest turns of a
conversation, insert a timestamp, or order documents anew send tokens that were computed, at places where
they are of no use. This finds them by runs of tokens that an earlier prompt had elsewhere.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

WINDOW = 32
"""Tokens of a run: long enough not to be met by chance."""
_REMEMBERED = 512
"""Prompts that the next are compared with."""
_SAME = 0.95

Kind = Literal["new", "extended", "truncated", "shifted", "reordered"]
"""Nothing of it was seen; what was seen is its beginning; the beginning of what was seen is cut off;
something was put before it; it comes in another order, or in pieces."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One prompt beside the earlier one that has most of it."""

    index: int
    tokens: int
    kind: Kind
    prefix: int
    """Tokens that both begin with."""
    seen: int
    """Tokens that the earlier one has, wherever."""
    like: int | None
    """Index of the earlier one."""
    moved: int
    """By how many tokens what was seen has moved, to the front where negative; 0 where in several ways."""

    @property
    def lost(self) -> int:
        """Tokens that were computed before and have to be again."""
        return max(0, self.seen - self.prefix)


def divergences(prompts: Iterable[Sequence[int]]) -> Iterable[Divergence]:
    """Each prompt compared with those before it; of long logs with the latest of them."""
    memory = _Memory()
    for index, tokens in enumerate(prompts):
        yield _compare(index, tokens, memory)
        memory.add(index, tokens)


@dataclass(slots=True)
class Summary:
    """Many prompts together."""

    prompts: int = 0
    tokens: int = 0
    reusable: int = 0
    """In prefixes that were seen before."""
    lost: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    """Prompts."""
    lost_by_kind: dict[str, int] = field(default_factory=dict)
    """Tokens."""


def summarise(found: Iterable[Divergence]) -> Summary:
    """Totals, for a report."""
    total = Summary()
    for one in found:
        total.prompts += 1
        total.tokens += one.tokens
        total.reusable += one.prefix
        total.lost += one.lost
        total.by_kind[one.kind] = total.by_kind.get(one.kind, 0) + 1
        total.lost_by_kind[one.kind] = total.lost_by_kind.get(one.kind, 0) + one.lost
    return total


class _Memory:
    """Earlier prompts, and where in them each run of tokens begins that lies on a multiple of `WINDOW`."""

    def __init__(self) -> None:
        self.prompts: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._places: dict[tuple[int, ...], tuple[int, int]] = {}

    def add(self, index: int, tokens: Sequence[int]) -> None:
        self.prompts[index] = own = tuple(tokens)
        for at in range(0, len(own) - WINDOW + 1, WINDOW):
            self._places[own[at : at + WINDOW]] = index, at
        if len(self.prompts) > _REMEMBERED:
            old, gone = self.prompts.popitem(last=False)
            for at in range(0, len(gone) - WINDOW + 1, WINDOW):
                if self._places.get(gone[at : at + WINDOW], (-1, 0))[0] == old:
                    del self._places[gone[at : at + WINDOW]]

    def find(self, run: tuple[int, ...]) -> tuple[int, int] | None:
        """(which prompt, where in it)."""
        return self._places.get(run)


def _compare(index: int, tokens: Sequence[int], memory: _Memory) -> Divergence:
    own = tuple(tokens)
    runs = list(_runs(own, memory))
    if not runs:
        return Divergence(index, len(own), "new", 0, 0, None, 0)
    like, _ = Counter(prompt for prompt, _, _ in runs).most_common(1)[0]
    prefix = max(_prefix(own, memory.prompts[prompt]) for prompt in {prompt for prompt, _, _ in runs})
    seen = max(WINDOW * len(runs), prefix)
    shifts = Counter(there - here for _, here, there in runs)
    shift, most = shifts.most_common(1)[0]
    if prefix >= _SAME * seen:
        return Divergence(index, len(own), "extended", prefix, seen, like, 0)
    moved = [here for _, here, there in runs if here >= prefix]
    if not shift or most < _SAME * len(moved):
        shift = _only_shift(runs, prefix)
    kind: Kind = "reordered" if not shift else ("truncated" if shift > 0 else "shifted")
    return Divergence(index, len(own), kind, prefix, seen, like, -shift)


def _only_shift(runs: Sequence[tuple[int, int, int]], prefix: int) -> int:
    """By how much everything after the common prefix has moved; 0 where not all of it by the same."""
    shifts = {there - here for _, here, there in runs if here >= prefix}
    return shifts.pop() if len(shifts) == 1 else 0


def _runs(own: tuple[int, ...], memory: _Memory) -> Iterable[tuple[int, int, int]]:
    """(which prompt, where here, where there) of every run that an earlier prompt has; none overlap."""
    at = 0
    while at + WINDOW <= len(own):
        place = memory.find(own[at : at + WINDOW])
        if place is None:
            at += 1
        else:
            yield place[0], at, place[1]
            at += WINDOW


def _prefix(one: Sequence[int], other: Sequence[int]) -> int:
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in both if a != b), min(len(one), len(other)))
