"""Which blob goes first when room is needed.

A policy only keeps an order over keys. What may not go (leased, pinned) and how many bytes are
wanted is the backend's business. Not thread-safe: the backend calls it under its index lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice


class EvictionPolicy(ABC):
    """An order over the keys a backend holds and may evict."""

    @abstractmethod
    def admit(self, key: str, size: int, *, cold: bool = False) -> None:
        """Take a key that is not known yet; `cold` makes it the next victim.

        `size` is the blob's bytes, for policies that weigh it.
        """

    @abstractmethod
    def touch(self, keys: Iterable[str]) -> None:
        """Note a use of each key; the last becomes the most recent. Unknown keys are ignored."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is ignored."""

    @abstractmethod
    def victims(self, limit: int) -> list[str]:
        """Up to `limit` keys, the first to go first. They stay admitted until `remove`."""


class Lru(EvictionPolicy):
    """Least recently used first."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def admit(self, key: str, size: int, *, cold: bool = False) -> None:
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


_POLICIES: dict[str, Callable[[], EvictionPolicy]] = {"lru": Lru}


def make_policy(name: str) -> EvictionPolicy:
    """The policy a configuration names. Raises ValueError for a name there is no policy of."""
    if name not in _POLICIES:
        raise ValueError(f"unknown eviction policy {name!r}; choose one of {sorted(_POLICIES)}")
    return _POLICIES[name]()
