"""Least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from sgkv.backends.eviction.base import EvictionPolicy


class Lru(EvictionPolicy):
    """One queue: a use sends a key to its end."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def admit(self, key: str, size: int, *, cold: bool = False, after: str | None = None) -> None:
        self._order[key] = None
        if cold:
            self._order.move_to_end(key, last=False)

    def touch(self, keys: Iterable[str]) -> None:
        order = self._order
        for key in keys:
            if key in order:
                order.move_to_end(key)

    def remove(self, key: str) -> None:
        self._order.pop(key, None)

    def victims(self, limit: int) -> list[str]:
        return list(islice(self._order, limit))
