"""Which blob goes first when room is needed.

A policy only keeps an order over keys. What may not go (leased, pinned) and how many bytes are
wanted is the backend's business. Not thread-safe: the backend calls it under its index lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class EvictionPolicy(ABC):
    """An order over the keys a backend holds and may evict."""

    @abstractmethod
    def admit(self, key: str, size: int, *, cold: bool = False, after: str | None = None) -> None:
        """Take a key that is not known yet; `cold` makes it the next victim.

        `size` is the blob's bytes. `after` is the key of the blob that this one continues, where the
        backend was told: of no use without the other, so that it should go first. It may be unknown.
        """

    @abstractmethod
    def touch(self, keys: Iterable[str]) -> None:
        """Note a use of each key; the last becomes the most recent. Unknown keys are ignored."""

    def reorder(self, keys: Iterable[str]) -> None:
        """Keys of one chain, its last first, of which some were written or read: order, and no use.

        It follows the `touch` or `admit` of those. The default takes it for uses.
        """
        self.touch(keys)

    @abstractmethod
    def remove(self, key: str) -> None:
        """Forget a key; an unknown one is ignored."""

    @abstractmethod
    def victims(self, limit: int) -> list[str]:
        """Up to `limit` keys, the first to go first. They stay admitted until `remove`."""
