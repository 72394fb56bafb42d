"""Which engine was sent which prefixes: what is known where no controller says it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class Sent:
    """Of the event loop alone. At most `most` pages; those not met for longest go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._engines: OrderedDict[str, int] = OrderedDict()
        """By page, a bit for each engine."""

    def note(self, engine: int, hashes: Sequence[str]) -> None:
        """An engine has been sent these pages, and will have them."""
        for page in reversed(hashes):  # the start of a prompt goes last: without it the rest is of no use
            self._engines[page] = self._engines.get(page, 0) | 1 << engine
            self._engines.move_to_end(page)
        while len(self._engines) > self._most:
            self._engines.popitem(last=False)

    def forget(self, engine: int) -> None:
        """It has begun anew."""
        for page, engines in list(self._engines.items()):
            left = engines & ~(1 << engine)
            if left:
                self._engines[page] = left
            else:
                del self._engines[page]

    def leading(self, hashes: Sequence[str], engines: int) -> list[int]:
        """How many leading pages each of so many engines was sent."""
        runs, alive = [0] * engines, (1 << engines) - 1
        for page in hashes:
            alive &= self._engines.get(page, 0)
            if not alive:
                break
            for engine in range(engines):
                runs[engine] += alive >> engine & 1
        return runs
