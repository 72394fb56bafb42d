"""Models with several pools: a prefix is usable only if every pool of it is."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


class Need(enum.Enum):
    """What a pool must have for a prefix of n pages."""

    ALL = "all"
    """Every page of the prefix."""
    TRAILING = "trailing"
    """The last `window` pages of it: sliding windows, recurrent state."""


@dataclass(frozen=True, slots=True)
class PoolCover:
    """Which pages of a span one pool has."""

    need: Need
    present: Sequence[bool]
    window: int = 1


def restorable(cover: PoolCover) -> set[int]:
    """Every prefix length (in pages, from 1) that the pool can serve."""
    if cover.need is Need.ALL:
        return set(range(1, leading(cover.present) + 1))
    # missing[n] counts the absent pages before n: a window is whole where none is inside it.
    missing = list(accumulate((not flag for flag in cover.present), initial=0))
    return {
        length
        for length in range(1, len(cover.present) + 1)
        if missing[length] == missing[max(0, length - cover.window)]
    }


def leading(flags: Sequence[bool]) -> int:
    """Length of the leading run of True."""
    return next((index for index, flag in enumerate(flags) if not flag), len(flags))
