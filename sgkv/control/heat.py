"""Which prefixes are asked for most."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class HotPrefix:
    """A prefix that lookups found somewhere."""

    namespace: str
    hash: str
    """Of its last page."""
    pages: int
    lookups: int = 0


class Heat:
    """Of the event loop alone. At most `most` prefixes; those not met for longest are forgotten."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._prefixes: OrderedDict[tuple[str, str], HotPrefix] = OrderedDict()

    def note(self, namespace: str, hashes: Sequence[str], pages: int) -> None:
        """A lookup of `hashes` found `pages` of them."""
        if not pages:
            return
        name = namespace, hashes[pages - 1]
        prefix = self._prefixes.setdefault(name, HotPrefix(*name, pages))
        prefix.lookups += 1
        self._prefixes.move_to_end(name)
        if len(self._prefixes) > self._most:
            self._prefixes.popitem(last=False)

    def hottest(self, limit: int) -> list[HotPrefix]:
        return sorted(self._prefixes.values(), key=lambda one: -one.lookups)[:limit]
