"""Items and their bytes, added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Item(Protocol):
    """A blob or a prompt."""

    @property
    def size(self) -> int:
        """Bytes."""


class Amount(NamedTuple):
    """How many items, of how many bytes in all."""

    items: int = 0
    bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.items + other.items, self.bytes + other.bytes)

    def minus(self, other: Amount) -> Amount:
        return Amount(self.items - other.items, self.bytes - other.bytes)


def total(items: Iterable[Item]) -> Amount:
    """Of all of them."""
    sizes = [item.size for item in items]
    return Amount(len(sizes), sum(sizes))


def within(items: Sequence[Item], max_bytes: int | None) -> int:
    """How many of the first items make up at most `max_bytes`; all of them without a limit."""
    room = max_bytes
    for at, item in enumerate(items):
        if room is None:
            break
        room -= item.size
        if room < 0:
            return at
    return len(items)
