"""Storing pages from vLLM's blocks, in a thread of their own, as long as the blocks are theirs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.store.pools import leading
from sgkv.transfer.chunks import save
from sgkv.transfer.staging import Ring
from sgkv.vllm.connecting.messages import Save
from sgkv.vllm.connecting.shelves import DeviceBlocks, Move, Shelves, recorded

_BACKLOG = 4096


class BlocksLostError(Exception):
    """The blocks are another request's now."""


class RevocablePages:
    """Pages to be packed until they are revoked; after that nothing reads the blocks. Any thread.

    What `save` uses of `DevicePages`, for the blocks of one save.
    """

    def __init__(self, pages: DeviceBlocks, revoked: threading.Event, lock: threading.Lock) -> None:
        self._pages = pages
        self._revoked = revoked
        self._lock = lock
        self.page_size = pages.page_size
        self.page_bytes = pages.page_bytes
        self.rejected = pages.rejected

    def pack(self, slots: torch.Tensor, buffer: torch.Tensor) -> None:
        """As `DevicePages.pack`; raises BlocksLostError once they are revoked."""
        with self._lock:
            if self._revoked.is_set():
                raise BlocksLostError
            self._pages.pack(slots, buffer)
            recorded(self._pages.device).synchronize()


class Saves:
    """One thread that stores what it is given, in order. Worker's main thread, but for `_carry_out`."""

    def __init__(
        self, shelves: Shelves, ring: Ring, counters: Counters, *, exists_deadline: float, set_deadline: float
    ) -> None:
        """Deadlines in seconds, of one lookup and of one batch of writing."""
        self._shelves = shelves
        self._ring = ring
        self._counters = counters
        self._exists_deadline, self._set_deadline = exists_deadline, set_deadline
        self._worker = WorkerPool(1, "sgkv-connector-save", backlog=_BACKLOG)
        self._changed = threading.Condition()
        self._revoked: dict[int, threading.Event] = {}
        """Of every save under way."""
        self._packing = threading.Lock()
        self._ended: Counter[int] = Counter()

    def submit(self, saves: Sequence[Save], device: torch.device) -> None:
        """Store pages that the device's current stream will have computed. Each save ends, come what may."""
        ready = recorded(device) if saves else None
        for each in saves:
            revoked = threading.Event()
            with self._changed:
                self._revoked[each.number] = revoked
            if self._worker.submit(partial(self._carry_out, each, ready, revoked)) is None:
                self._end(each, stored=False)

    def refuse(self, each: Save) -> None:
        """End a save that must not be carried out."""
        self._end(each, stored=False)

    def revoke(self, numbers: Sequence[int]) -> None:
        """After this nothing reads the blocks of these saves. Waits for one batch that is being copied."""
        with self._changed:
            events = [self._revoked[number] for number in numbers if number in self._revoked]
        for event in events:
            event.set()
        if events:
            with self._packing:
                pass

    def take(self) -> Counter[int]:
        """Saves that have ended since the last time."""
        with self._changed:
            ended, self._ended = self._ended, Counter()
        return ended

    def wait(self, timeout: float) -> bool:
        """Until every save has ended; False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._revoked, timeout)

    def close(self, timeout: float) -> bool:
        """Store what is queued for as long as that takes, then nothing more."""
        done = self._worker.close(timeout)
        with self._changed:
            left = list(self._revoked)
        self.revoke(left)
        return done

    def _carry_out(self, each: Save, ready: Any, revoked: threading.Event) -> None:
        stored = False
        try:
            with contained("storing pages", self._counters):
                ready.synchronize()
                stored = self._store_all(each, revoked)
        finally:
            self._end(each, stored=stored)

    def _end(self, each: Save, *, stored: bool) -> None:
        if not stored:
            self._counters.add("lost_saves")
        with self._changed:
            self._revoked.pop(each.number, None)
            self._ended[each.number] += 1
            self._changed.notify_all()

    def _store_all(self, each: Save, revoked: threading.Event) -> bool:
        """Every page that is not there yet; False where some were not stored."""
        try:
            moves = self._shelves.moves(each.pages, None, whole=True)
            return all(self._store(move, revoked) for move in moves)
        except BlocksLostError:
            return False

    def _store(self, move: Move, revoked: threading.Event) -> bool:
        session, size = move.shelf.session, move.shelf.pages.page_size
        there = leading(session.contains(move.span, Deadline(self._exists_deadline)))
        count = len(move.span.hashes)
        if there == count:
            return True
        there -= min(there, (move.span.start + there) % session.pages_per_chunk)  # chunks are written whole
        pages: Any = RevocablePages(move.shelf.pages, revoked, self._packing)
        left = move.span.part(there, count)
        stored = save(
            session, left, pages, move.slots[there * size :], self._ring, lambda: Deadline(self._set_deadline)
        )
        return stored == len(left.hashes)
