"""Kinds of blobs, segments by age, and the ends of chains before their beginnings."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from sgkv.backends.eviction.base import EvictionPolicy
from sgkv.backends.eviction.reuse.learning import Learned
from sgkv.backends.eviction.reuse.lineage import Lineage
from sgkv.backends.eviction.reuse.segments import Segments

_GHOSTS = 2
"""Evicted blobs that are remembered for each that is there."""
_EPOCHS = 32
"""Epochs in which as many blobs are admitted or used as there are."""
_SHORTEST_EPOCH = 16


class Reuse(EvictionPolicy):
    """Least worth keeping first (see `hazard`), and no blob before those that continue it.

    What blobs of a kind are worth at an age is learned while it runs, from uses and from what is evicted,
    which is remembered for a while by name. Kinds are told apart by what matters for the use of a chain: how
    often a blob was used, whether its chain is a conversation that was taken up again, how deep in it the
    blob lies, whether it is its short end. Uses are worth their bytes: KV takes as much room as it took
    tokens to compute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lineage = Lineage()
        self._segments = Segments()
        self._learned = Learned()
        self._ghosts: OrderedDict[str, None] = OrderedDict()
        self._present = 0
        self._events = 0
        """Blobs admitted and used in this epoch, and when it and the one before it began."""
        self._epoch = self._epoch_before = clock()

    def admit(self, key: str, size: int, *, cold: bool = False, after: str | None = None) -> None:
        if after is not None:  # to write a blob is to use what it continues
            self._use(after)
        self._present += 1
        if key in self._ghosts:
            del self._ghosts[key]
            self._use(key)
        else:
            self._lineage.enter(key, size, after)
            self._segments.place(key, self._lineage.kind(key), self._clock(), cold=cold)
        self._lineage.link(key, after)
        if after is not None and self._is_present(after):
            self._segments.hide(after)
        if not self._lineage.children(key):
            self._segments.show(key)
        self._count()

    def touch(self, keys: Iterable[str]) -> None:
        for key in keys:
            if self._use(key):
                self._count()

    def remove(self, key: str) -> None:
        if not self._is_present(key):
            return
        self._segments.hide(key)
        parent = self._lineage.unlink(key)
        if parent is not None and self._is_present(parent):
            self._segments.show(parent)
        self._present -= 1
        self._ghosts[key] = None
        while len(self._ghosts) > _GHOSTS * self._present:
            oldest, _ = self._ghosts.popitem(last=False)
            self._segments.drop(oldest)
            self._lineage.forget(oldest)

    def victims(self, limit: int) -> list[str]:
        return list(islice(self._order(), limit))

    def _is_present(self, key: str) -> bool:
        return key in self._segments and key not in self._ghosts

    def _use(self, key: str) -> bool:
        """Note a use, of a ghost too; False for a key that is not known."""
        if key not in self._segments:
            return False
        now, segment = self._clock(), self._segments.of(key)
        if segment.born < self._epoch_before:  # else it may be the same use as the last one
            if not self._segments.is_cold(segment):
                self._learned.use(segment.kind, now - segment.born)
            self._lineage.use(key)
        might_go = self._segments.hide(key)
        self._segments.drop(key)
        self._segments.place(key, self._lineage.kind(key), now)
        if might_go:
            self._segments.show(key)
        return True

    def _count(self) -> None:
        """An event; end the epoch after enough of them."""
        self._events += 1
        if self._events < max(_SHORTEST_EPOCH, self._present // _EPOCHS):
            return
        now = self._clock()
        for segment in self._segments:
            seconds = segment.population * (now - max(self._epoch, segment.born))
            self._learned.expose(segment.kind, now - segment.born, seconds)
        self._learned.study()
        self._segments.rank(lambda segment: self._learned.worth(segment.kind, now - segment.born))
        self._epoch_before, self._epoch, self._events = self._epoch, now, 0

    def _order(self) -> Iterator[str]:
        """Every key, each after those that continue it."""
        gone = Counter[str]()
        freed: defaultdict[int, list[str]] = defaultdict(list)
        for segment in self._segments.ranked():
            for leaf in chain(segment.in_order(), freed[segment.rank]):
                key: str | None = leaf
                while key is not None:
                    yield key
                    key = self._freed(key, gone)
                    if key is not None and (later := self._segments.of(key).rank) > segment.rank:
                        freed[later].append(key)
                        key = None

    def _freed(self, key: str, gone: Counter[str]) -> str | None:
        """The key that may go once `key` and those in `gone` are."""
        parent = self._lineage.parent(key)
        if parent is None or not self._is_present(parent):
            return None
        gone[parent] += 1
        return parent if gone[parent] == self._lineage.children(parent) else None
