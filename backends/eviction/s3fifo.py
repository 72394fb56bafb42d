"""S3-FIFO: three queues, and only what is used again gets past the small one.

Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023, with the
constants of the paper and of the authors' libCacheSim: a small queue of a tenth of the bytes, a ghost
queue of nine tenths of the keys, uses counted up to 3, two of them to leave the small queue for the main
one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

from sgkv.backends.eviction.base import EvictionPolicy

_SMALL_SHARE = 0.1
_GHOST_SHARE = 0.9
_MOST_USES = 3
_PROVEN = 2
"""Uses in the small queue that earn a place in the main one."""


class S3Fifo(EvictionPolicy):
    """First in first out, with a short trial for what is new. Chains are not looked at."""

    def __init__(self) -> None:
        self._small: OrderedDict[str, int] = OrderedDict()
        """Bytes by key, the first to go first; `_main` likewise."""
        self._main: OrderedDict[str, int] = OrderedDict()
        self._ghosts: OrderedDict[str, None] = OrderedDict()
        self._uses: dict[str, int] = {}
        self._small_bytes = 0
        self._main_bytes = 0

    def admit(self, key: str, size: int, *, cold: bool = False, after: str | None = None) -> None:
        self._uses[key] = 0
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = size
            self._main_bytes += size
            return
        self._small[key] = size
        self._small_bytes += size
        if cold:
            self._small.move_to_end(key, last=False)

    def touch(self, keys: Iterable[str]) -> None:
        uses = self._uses
        for key in keys:
            if key in uses:
                uses[key] = min(_MOST_USES, uses[key] + 1)

    def reorder(self, keys: Iterable[str]) -> None:
        """Nothing: the queues keep the order of arrival."""

    def remove(self, key: str) -> None:
        uses = self._uses.pop(key, None)
        if key in self._main:
            self._main_bytes -= self._main.pop(key)
        elif uses is not None:
            self._small_bytes -= self._small.pop(key)
            self._ghosts[key] = None
        while len(self._ghosts) > _GHOST_SHARE * len(self._uses):
            self._ghosts.popitem(last=False)

    def victims(self, limit: int) -> list[str]:
        self._settle()
        return list(islice(self._order(), limit))

    def _settle(self) -> None:
        """Let move on what comes to the end of its queue and has earned to stay; again changes nothing."""
        while self._uses:
            if self._small_goes(self._small_bytes, self._main_bytes):
                key, size = next(iter(self._small.items()))
                if self._uses[key] < _PROVEN:
                    return
                self._prove(key, size)
            else:
                key = next(iter(self._main))
                if not self._uses[key]:
                    return
                self._uses[key] -= 1
                self._main.move_to_end(key)

    def _prove(self, key: str, size: int) -> None:
        del self._small[key]
        self._main[key] = size
        self._uses[key] = 0
        self._small_bytes -= size
        self._main_bytes += size

    def _small_goes(self, small: int, main: int) -> bool:
        """Whether the next victim is one of the small queue, with so many bytes in each."""
        return not main or (small > 0 and small >= _SMALL_SHARE * (small + main))

    def _order(self) -> Iterator[str]:
        """Every key: those that would go as things are, in turn, then those that have earned to stay."""
        small = (key for key in self._small if self._uses[key] < _PROVEN)
        main = (key for key in self._main if not self._uses[key])
        bytes_small, bytes_main = self._small_bytes, self._main_bytes
        while True:
            first, second = (small, main) if self._small_goes(bytes_small, bytes_main) else (main, small)
            key = next(first, None) or next(second, None)
            if key is None:
                break
            bytes_small -= self._small.get(key, 0)
            bytes_main -= self._main.get(key, 0)
            yield key
        yield from (key for key in self._small if self._uses[key] >= _PROVEN)
        yield from (key for key in self._main if self._uses[key])
