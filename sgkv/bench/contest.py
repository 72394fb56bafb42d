"""Several ways to store the same pages and to read them back, side by side."""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain

from sgkv.backends.base import Buffer
from sgkv.bench.effort import BenchError
from sgkv.bench.memory import address_of
from sgkv.bench.timing import Cost, Series, cost_of, rotated, settled_heap

Page = Sequence[Buffer]


class Payload:
    """Pages full of bytes that no two of them share."""

    def __init__(self, pages: Sequence[Page]) -> None:
        """`pages` lie where the owner keeps them, and are filled here."""
        self.pages = pages
        self.size = sum(len(buffer) for page in pages for buffer in page)
        for page in pages:
            for buffer in page:
                _scribble(buffer)
        self._digests = self._digest()

    def wipe(self) -> None:
        """Zero every byte, so that only a real read can bring it back."""
        for page in self.pages:
            for buffer in page:
                ctypes.memset(address_of(buffer), 0, len(buffer))

    def require_intact(self, reader: str) -> None:
        """Raises BenchError unless every byte is what was written: a fast wrong read is worth nothing."""
        wrong = sum(now != then for now, then in zip(self._digest(), self._digests, strict=True))
        if wrong:
            raise BenchError(f"{reader} read back {wrong} of {len(self.pages)} pages wrong")

    def _digest(self) -> list[bytes]:
        digests = []
        for page in self.pages:
            digest = blake2b()
            for buffer in page:
                digest.update(buffer)
            digests.append(digest.digest())
        return digests


class Contender(ABC):
    """One way to keep pages. Raises BenchError when an operation does not do all it was asked."""

    def prepare(self, keys: Sequence[str]) -> None:
        """Called before `put`, off the clock."""

    @abstractmethod
    def put(self, keys: Sequence[str]) -> None:
        """Store the payload's pages under new keys."""

    @abstractmethod
    def get(self, keys: Sequence[str]) -> None:
        """Fill the payload's pages with what was stored under `keys`."""

    def clear(self) -> None:
        """Give back the memory of what was stored; it is not asked for again. Done on return."""


Group = dict[str, Contender]
"""Contenders that take their turn together: all put, then all get, in the reverse order, then all clear."""


class Contest:
    """Runs contenders in turn and keeps what each operation took."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self._costs: dict[tuple[str, str], list[Cost]] = {}
        self._verified: set[str] = set()

    def run(self, groups: Sequence[Group], rounds: int) -> None:
        """One round in which everything read is verified and nothing counted, then `rounds` that count.

        May be called again, with fewer contenders: those seen before are not verified again. Groups
        begin in turn.
        """
        for group in groups:
            self._verify(group)
        with settled_heap():
            for group in chain.from_iterable(rotated(groups, at) for at in range(rounds)):
                self._turn(group)
                _clear(group)

    def series(self, contender: str, operation: str) -> Series:
        """`operation` is ``put`` or ``get``."""
        return Series(self._costs[contender, operation])

    def _verify(self, group: Group) -> None:
        if self._verified.issuperset(group):
            return
        keys = fresh_keys(len(self.payload.pages))
        for name, contender in group.items():
            contender.prepare(keys)
            contender.put(keys)
            self.payload.wipe()
            contender.get(keys)
            self.payload.require_intact(name)
        self._verified.update(group)
        _clear(group)

    def _turn(self, group: Group) -> None:
        keys = fresh_keys(len(self.payload.pages))
        for name, contender in group.items():
            contender.prepare(keys)
            self._note(name, "put", partial(contender.put, keys))
        for name, contender in reversed(group.items()):
            self._note(name, "get", partial(contender.get, keys))

    def _note(self, name: str, operation: str, work: Callable[[], None]) -> None:
        self._costs.setdefault((name, operation), []).append(cost_of(work))


def _clear(group: Group) -> None:
    for contender in reversed(group.values()):
        contender.clear()


def fresh_keys(count: int) -> list[str]:
    """Keys in the form of page hashes that nobody has stored anything under."""
    return [os.urandom(32).hex() for _ in range(count)]


def _scribble(buffer: Buffer) -> None:
    """A random block over and over, each time with its offset in front: bytes know where they belong."""
    block = os.urandom(min(len(buffer), 1 << 20))
    for start in range(0, len(buffer), len(block)):
        piece = buffer[start : start + len(block)]
        piece[:] = (start.to_bytes(8, "little") + block[8:])[: len(piece)]
