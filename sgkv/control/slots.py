"""Small numbers for accounts of instances: taken, retired, and taken again once no record has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Slots:
    """At most `limit` at a time. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        self.retired: set[int] = set()
        """Not in use any more, but records of theirs may still be there."""
        self.highest = 0
        """Every slot is below."""
        self._limit = limit
        self._free: list[int] = []
        self._live: set[int] = set()

    def take(self) -> int:
        """Raises ValueError where all are in use."""
        if not self._free:
            if self.highest >= self._limit:
                raise ValueError(f"there are {self._limit} accounts of instances, and may be no more")
            self._free.append(self.highest)
            self.highest += 1
        slot = self._free.pop()
        self._live.add(slot)
        return slot

    def retire(self, slot: int) -> None:
        self._live.remove(slot)
        self.retired.add(slot)

    def reuse(self, slots: Iterable[int]) -> None:
        """No record has them any more."""
        self.retired.difference_update(slots)
        self._free.extend(slots)

    def live(self, bits: Callable[[int], int]) -> int:
        """`bits` of every slot in use, together."""
        return sum(map(bits, self._live))
