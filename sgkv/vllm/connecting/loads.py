"""Loads between steps: read, verified and put into blocks while vLLM computes other requests."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.reasons import MissReason
from sgkv.transfer.chunks import fetch
from sgkv.transfer.staging import Ring
from sgkv.vllm.connecting.messages import Load
from sgkv.vllm.connecting.shelves import Move, Shelves

_BACKLOG = 4096
_PIECE_PAGES = 64
"""Of pages, read under one deadline."""


class Loads:
    """One thread that fills blocks. Worker's main thread, but for `_carry_out`."""

    def __init__(self, shelves: Shelves, ring: Ring, counters: Counters, seconds: float) -> None:
        """Each piece of a load ends after `seconds`."""
        self._shelves = shelves
        self._ring = ring
        self._counters = counters
        self._seconds = seconds
        self._worker = WorkerPool(1, "sgkv-connector-load", backlog=_BACKLOG)
        self._lock = threading.Lock()
        self._ended: dict[str, bool] = {}

    def submit(self, load: Load, ready: Any) -> None:
        """Fill blocks after the event `ready`. Every load ends, come what may."""
        if self._worker.submit(partial(self._carry_out, load, ready, self._shelves.epoch)) is None:
            self._end(load, loaded=False)

    def take(self) -> dict[str, bool]:
        """Requests whose loads have ended since the last time, and whether all of it is there."""
        with self._lock:
            ended, self._ended = self._ended, {}
        return ended

    def close(self, timeout: float) -> bool:
        return self._worker.close(timeout)

    def _carry_out(self, load: Load, ready: Any, epoch: int) -> None:
        loaded = False
        try:
            with contained("a load", self._counters):
                self._ring.follow([ready])
                moves = list(self._shelves.moves(load.pages, range(load.first, load.stop), whole=False))
                loaded = all(self._fetch(move) for move in moves) and epoch == self._shelves.epoch
        finally:
            self._end(load, loaded=loaded)

    def _fetch(self, move: Move) -> bool:
        """In pieces that end where chunks do; False after the first page that cannot be had."""
        pages, start, total = move.shelf.pages, move.span.start, len(move.span.hashes)
        first = 0
        while first < total:
            stop = min(total, (start + first + _PIECE_PAGES) // _PIECE_PAGES * _PIECE_PAGES - start)
            slots = move.slots[first * pages.page_size : stop * pages.page_size]
            if self._read(move, first, stop, slots) is not None:
                return False
            first = stop
        return True

    def _read(self, move: Move, first: int, stop: int, slots: Any) -> MissReason | None:
        pages: Any = move.shelf.pages
        span, deadline = move.span.part(first, stop), Deadline(self._seconds)
        return fetch(move.shelf.session, span, pages, slots, self._ring, deadline)

    def _end(self, load: Load, *, loaded: bool) -> None:
        if not loaded:
            self._counters.add("failed_loads", len(load.pages.hashes))
        with self._lock:
            self._ended[load.pages.request] = loaded
