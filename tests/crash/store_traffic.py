"""A whole store over a folder, used by processes that are killed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.keys import hash_pages
from sgkv.reasons import MissReason
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store, StoreOptions
from sgkv.store.tier import Tier
from tests.crash.forks import die_at, fork
from tests.crash.ledger import Ledger, State
from tests.store.conftest import PAGE_BYTES, layout, namespace

_CHAINS = 8
_PAGES = 10
"""Two chunks of four pages, and two pages of their own."""
_ARENA = 32 * PAGE_BYTES
_CALLS = 60


@lru_cache(maxsize=_CHAINS)
def chain(number: int) -> list[str]:
    return hash_pages([number * 1_000_000 + token for token in range(_PAGES * 16)], 16)


@lru_cache(maxsize=_CHAINS * _PAGES)
def content(page_hash: str) -> bytes:
    return random.Random(page_hash).randbytes(PAGE_BYTES)


@dataclass(slots=True)
class StoreRig:
    """Where the store lies, and what its callers were promised: one ledger entry a chain."""

    path: Path
    tiers: str
    seed: int
    ledger: Ledger = field(default_factory=lambda: Ledger(_CHAINS))
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def start(self, point: str) -> int:
        """A child that checks what it finds, works, and dies at `point`."""
        seed, passes = self.random.getrandbits(32), self.random.randint(1, 2)

        def run() -> None:
            die_at(point, passes)
            store = self._open()
            session = store.open(namespace(), layout())
            for number in range(_CHAINS):
                self._verify(session, number)
            calls = _Calls(store, session, self.ledger, random.Random(seed), often_clears="clear" in point)
            calls.run()
            store.close()

        return fork(run)

    def _open(self) -> Store:
        tiers = [Tier("disk", DiskBackend(self.path, 1 << 30, min_free_bytes=0))]
        if self.tiers != "disk":
            arena = CpuBackend(_ARENA, prefault=False)
            tiers.insert(0, Tier("cpu", arena, arena=arena))
        return Store(tiers, StoreOptions(chunk_tokens=64, tail_delay=60.0))

    def _verify(self, session: Session, number: int) -> None:
        """Every page of a flushed chain is there, and none of a cleared one; never a wrong byte."""
        found = session.lookup(Span(chain(number)), Deadline(10)).pages
        served = read(session, chain(number)).count(None)
        state = self.ledger[number]
        assert state is not State.PUBLISHED or found == served == _PAGES, f"{found} and {served} pages left"
        assert state is not State.GONE or found == served == 0, f"cleared, but {found} and {served} are there"


@dataclass(slots=True)
class _Calls:
    """What an engine asks of a store, at random."""

    store: Store
    session: Session
    ledger: Ledger
    random: random.Random
    often_clears: bool

    def run(self) -> None:
        for _ in range(_CALLS):
            number, draw = self.random.randrange(_CHAINS), self.random.random()
            if draw < (0.3 if self.often_clears else 0.02):
                self._clear()
            elif draw < 0.6:
                self._write(number)
            else:
                read(self.session, chain(number))

    def _write(self, number: int) -> None:
        if self.ledger[number] is State.GONE:
            self.ledger[number] = State.UNSURE
        pages = [[memoryview(content(page_hash))] for page_hash in chain(number)]
        stored = self.session.set(Span(chain(number)), pages, Deadline(10))
        if self.store.flush(10) and all(stored):
            self.ledger[number] = State.PUBLISHED

    def _clear(self) -> None:
        for number in range(_CHAINS):
            self.ledger[number] = State.UNSURE
        self.session.clear()
        for number in range(_CHAINS):
            self.ledger[number] = State.GONE


def read(session: Session, hashes: Sequence[str]) -> list[MissReason | None]:
    """Read pages, and compare every one that is served with what belongs into it."""
    pages = [[memoryview(bytearray(PAGE_BYTES))] for _ in hashes]
    reasons = session.get(Span(hashes), pages, Deadline(10))
    for page_hash, (page,), reason in zip(hashes, pages, reasons, strict=True):
        assert reason is not None or page == content(page_hash), f"wrong bytes for {page_hash}"
    return reasons
