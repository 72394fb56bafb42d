"""Offloads: pages that the model has computed, on their way into the store."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.sglang.linking.transfers import PageMove
from sgkv.store.pools import leading
from sgkv.transfer.chunks import save
from sgkv.transfer.staging import Ring
from sgkv.transfer.window import OffloadWindow

_BACKLOG = 4096
"""Offers that may wait; the window bounds their pages."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Pages of all pools of one node of SGLang's tree, to be stored as one."""

    moves: Sequence[PageMove]
    ready: Sequence[Any]
    """Events after which the pages may be read."""
    pages: int
    """Device pages that the engine keeps until the offer is popped."""
    current: Callable[[], bool]
    """Whether the pages still belong to the weights that they were computed with."""


class Offloading:
    """One thread that stores offers in their order. Other methods: scheduler thread."""

    def __init__(
        self,
        ring: Ring,
        window: OffloadWindow,
        counters: Counters,
        *,
        exists_deadline: float,
        set_deadline: float,
    ) -> None:
        """Deadlines of one lookup and one batch of writing, in seconds."""
        self._ring = ring
        self.window = window
        self._counters = counters
        self._exists_deadline, self._set_deadline = exists_deadline, set_deadline
        self._worker = WorkerPool(1, "sgkv-linker-offload", backlog=_BACKLOG)
        self._lock = threading.Lock()
        self._finished: deque[tuple[int, bool]] = deque()
        self._running: set[Future[None]] = set()
        self._generation = 0

    def queue(self, offer: Offer) -> None:
        """Take an offer that the window has room for. It ends with a result, come what may."""
        self.window.admit(offer.pages)
        generation = self._generation
        future = self._worker.submit(lambda: self._carry_out(offer, generation))
        if future is None:
            self._finish(offer.pages, False, generation)
            return
        self._running.add(future)
        future.add_done_callback(self._running.discard)

    def finished(self) -> int:
        """Offers that have ended and were not popped."""
        return len(self._finished)

    def pop(self) -> bool:
        """Whether the oldest of them was stored."""
        with self._lock:
            pages, stored = self._finished.popleft()
        self.window.release(pages)
        return stored

    def reset(self) -> None:
        """Begin nothing that is queued, wait for the batch that is under way, forget how offers ended."""
        with self._lock:
            self._generation += 1
        wait(list(self._running), self._set_deadline + self._exists_deadline)
        with self._lock:
            self._finished.clear()
        self.window.empty()

    def close(self) -> None:
        """Store what is queued for as long as one batch may take, then end."""
        wait(list(self._running), self._set_deadline)
        self.reset()
        self._worker.close(self._set_deadline)

    def _carry_out(self, offer: Offer, generation: int) -> None:
        stored = False
        with contained("offloading", self._counters):
            stored = self._store(offer, generation)
        self._finish(offer.pages, stored, generation)

    def _finish(self, pages: int, stored: bool, generation: int) -> None:
        with self._lock:
            if generation == self._generation:
                self.window.copied(pages)
                self._finished.append((pages, stored))

    def _store(self, offer: Offer, generation: int) -> bool:
        if generation != self._generation or not offer.current():
            return False
        for event in offer.ready:
            event.synchronize()
        # Side pools first: KV without them is no hit, and asked for first.
        return all(self._store_pool(move, generation) for move in reversed(offer.moves))

    def _store_pool(self, move: PageMove, generation: int) -> bool:
        """Store what is not there yet. SGLang offers what it has just loaded, too."""
        there = leading(move.session.contains(move.span, Deadline(self._exists_deadline)))
        self._counters.add("offload_present_pages", there)
        left = move.part(there, len(move.span.hashes))
        if not left.span.hashes:
            return True
        wanted = len(left.span.hashes)
        stored = save(
            left.session, left.span, left.pool.pages, left.slots, self._ring,
            lambda: Deadline(self._set_deadline), lambda: generation == self._generation,
        )  # fmt: skip
        self._counters.add("offload_wasted_pages", wanted - stored)
        return stored == wanted
