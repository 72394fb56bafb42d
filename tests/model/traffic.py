"""Many threads over two stores on one folder, while tiers fail and files rot.

Any page that is served is checked against what its hash says it holds. The same traffic runs as a test, of a
fixed number of calls, and as `make soak`, for as long as it is told.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sgkv.backends.base import Backend, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.backends.guard import Guarded
from sgkv.store.session import Session
from sgkv.store.span import Span
from sgkv.store.store import Store
from tests.model.client import DAMAGES
from tests.model.world import (
    FILE_CHARGE,
    blank,
    blob_files,
    content,
    filled,
    open_session,
    open_store,
    sequence,
)

PAGES = 9
PROMPTS = [sequence(number, PAGES, shared=5) for number in range(24)]
DISK_BYTES = 96 * FILE_CHARGE
ARENA_BYTES = 40 * 4096
_SHARES = (("get", 42), ("lookup", 32), ("set", 14), ("contains", 10), ("pin", 2))
_EVERY_CLEAR, _EVERY_DAMAGE = 4000, 200
"""Calls of a thread between two clears, and between two damaged files."""

RULES = (
    FaultRule(Fault.RAISE, probability=0.004),
    FaultRule(Fault.STATUS, frozenset({"put"}), probability=0.01, status=Status.FULL),
    FaultRule(Fault.STATUS, frozenset({"get"}), probability=0.01, status=Status.TIMEOUT),
    FaultRule(Fault.STATUS, frozenset({"contains"}), probability=0.01, status=Status.ABSENT),
    FaultRule(Fault.FLIP, frozenset({"get"}), probability=0.02),
    FaultRule(Fault.SHORT, frozenset({"get"}), probability=0.01),
    FaultRule(Fault.LOSE, frozenset({"put"}), probability=0.01),
)


@dataclass(slots=True)
class Tally:
    """What one thread did and saw."""

    calls: Counter[str] = field(default_factory=Counter)
    served: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)
    """Pages that were served with other bytes than theirs."""

    def add(self, other: Tally) -> None:
        self.calls.update(other.calls)
        self.served += other.served
        self.missed += other.missed
        self.wrong += other.wrong


@contextmanager
def two_stores(folder: Path) -> Iterator[list[Store]]:
    """One with a cpu tier and one without, both over failing disk tiers in `folder`."""
    stores = [
        open_store(
            folder,
            arena_bytes=arena_bytes,
            disk_bytes=DISK_BYTES,
            wrap=failing(seed),
            clock=time.time,
            tail_delay=0.02,
        )
        for seed, arena_bytes in enumerate((ARENA_BYTES, 0))
    ]
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


def failing(seed: int) -> Callable[[Backend], Backend]:
    """Faults below a guard, whose breaker opens now and then and soon tries again."""
    policy = BreakerPolicy(consecutive_failures=3, failure_share=0.9, cooldown_s=0.01, max_cooldown_s=0.02)
    return lambda disk: Guarded(Faulty(disk, RULES, seed=seed), breaker=policy, max_inflight=16)


@dataclass(slots=True)
class Player:
    """One thread's part of the traffic."""

    session: Session
    folder: Path
    seed: int
    tally: Tally = field(default_factory=Tally)

    def play(self, more: Callable[[], bool]) -> None:
        """Make calls until `more` says that it is enough."""
        chance = random.Random(self.seed)
        names, weights = zip(*_SHARES, strict=True)
        calls = {name: getattr(self, f"_{name}") for name in names}
        while more():
            batch = chance.choices(names, weights, k=50)
            for name in batch:
                calls[name](self._span(chance), chance)
                self.tally.calls[name] += 1
            self._now_and_then(chance, len(batch))

    def _span(self, chance: random.Random) -> Span:
        hashes = chance.choice(PROMPTS)
        first = chance.choice((0, 0, 0, chance.randrange(PAGES)))
        stop = chance.choice((PAGES, chance.randrange(first, PAGES) + 1))
        return Span(hashes[first:stop], hashes[:first] if chance.random() < 0.8 else None)

    def _get(self, span: Span, _chance: random.Random) -> None:
        pages = blank(len(span.hashes))
        reasons = self.session.get(span, pages, Deadline(5.0))
        for page_hash, page, reason in zip(span.hashes, pages, reasons, strict=True):
            if reason is not None:
                self.tally.missed += 1
                continue
            self.tally.served += 1
            if b"".join(page) != content(page_hash):
                self.tally.wrong.append(page_hash)

    def _set(self, span: Span, _chance: random.Random) -> None:
        self.session.set(span, filled(span.hashes), Deadline(5.0))

    def _lookup(self, span: Span, _chance: random.Random) -> None:
        self.session.lookup(span, Deadline(5.0))

    def _contains(self, span: Span, _chance: random.Random) -> None:
        self.session.contains(span, Deadline(5.0))

    def _pin(self, span: Span, chance: random.Random) -> None:
        self.session.pin(Span(span.hashes[:4], span.before), chance.random() < 0.3)

    def _now_and_then(self, chance: random.Random, calls: int) -> None:
        if chance.random() < calls / _EVERY_CLEAR:
            self.session.clear()
            self.tally.calls["clear"] += 1
        if chance.random() < calls / _EVERY_DAMAGE:
            self._damage(chance)

    def _damage(self, chance: random.Random) -> None:
        """Spoil a file as a disk or a person may; another thread may have been faster to remove it."""
        files = blob_files(self.folder)
        if not files:
            return
        try:
            DAMAGES[chance.choice(sorted(DAMAGES))](chance.choice(files), chance.choice(files))
            self.tally.calls["damage"] += 1
        except FileNotFoundError:
            self.tally.calls["damage too late"] += 1


def play(stores: list[Store], folder: Path, threads: int, more: Callable[[], bool], seed: int = 0) -> Tally:
    """`threads` players, one half a store, until `more` is False; what they all did.

    An exception of one of them is raised here: no call of a session may raise for what tiers do.
    """
    sessions = [open_session(store) for store in stores]
    players = [Player(sessions[n % len(sessions)], folder, seed * 1000 + n) for n in range(threads)]
    errors: list[BaseException] = []

    def run(player: Player) -> None:
        try:
            player.play(lambda: not errors and more())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    running = [
        threading.Thread(target=run, args=(player,), name=f"player-{player.seed}") for player in players
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    total = Tally()
    for player in players:
        total.add(player.tally)
    return total
