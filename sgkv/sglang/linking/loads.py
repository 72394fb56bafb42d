"""Loads: what can fail is done before one is queued, what is left is copied while the model computes.

Pages that were read ahead, and those in the cpu tier, lie in host memory and go to the device layer by
layer. All others are read, verified and put on the device at once, while the engine waits: a load that
fails after it was queued would cost its client an error, one that is refused costs a computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter

from sgkv.backends.base import Buffer
from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.reasons import MissReason
from sgkv.sglang.linking.transfers import PageMove
from sgkv.transfer.ahead import Early, ReadAhead
from sgkv.transfer.chunks import fetch
from sgkv.transfer.layers import HostPages, LayerSource, load_layers
from sgkv.transfer.staging import Ring

_BACKLOG = 64
"""Batches that may wait for the loading thread; SGLang has one or two under way."""


@dataclass(slots=True)
class Prepared:
    """One request's load: everything it needs is in memory or on the device already."""

    sources: list[LayerSource] = field(default_factory=list)
    held: ExitStack = field(default_factory=ExitStack)
    """Gives back the memory that the sources lie in."""

    def add(self, move: PageMove, pages: Sequence[int], views: Sequence[Buffer]) -> None:
        """Some pages of a move that lie in host memory."""
        if pages:
            parts = [part.slots for part in move.parts(pages)]  # an index would have to be sent to a GPU
            slots = parts[0] if len(parts) == 1 else torch.cat(parts)
            self.sources.append(HostPages(move.pool.pages, move.pool.layers, slots, views))

    def release(self) -> None:
        self.sources = []
        self.held.close()


class Preparation:
    """Prepares loads, one at a time. Scheduler thread."""

    def __init__(self, ring: Ring, ahead: ReadAhead) -> None:
        self._ring = ring
        self._ahead = ahead

    def prepare(
        self, rid: str, moves: Sequence[PageMove], ready: Sequence[Any], deadline: Deadline
    ) -> Prepared | MissReason:
        """Take, lease or fetch every page; why one of them cannot be had, else.

        Slots are written after the device has come to the events `ready`. Fetched pages are on the
        device when this returns, whatever it returns.
        """
        self._ring.follow(ready)
        with ExitStack() as unless_complete:
            prepared = Prepared()
            unless_complete.callback(prepared.release)
            early = self._arrived(rid, prepared, deadline)
            reason = self._all(moves, early, prepared, deadline)
            if reason is not None:
                return reason
            unless_complete.pop_all()
        return prepared

    def _arrived(self, rid: str, prepared: Prepared, deadline: Deadline) -> Early | None:
        """What was read ahead for the request, once that has ended."""
        early = self._ahead.take(rid)
        if early is not None:
            prepared.held.callback(self._ahead.free, early)
            early.settled(deadline.remaining() or 0.0)
        return early

    def _all(
        self, moves: Sequence[PageMove], early: Early | None, prepared: Prepared, deadline: Deadline
    ) -> MissReason | None:
        missing = [part for move in moves for part in _near(move, early, prepared)]
        reasons = (
            fetch(part.session, part.span, part.pool.pages, part.slots, self._ring, deadline)
            for part in missing
        )
        return next(filter(None, reasons), None)


class Loading:
    """Queued loads, and the thread that carries out a batch of them. Scheduler thread."""

    def __init__(
        self,
        counter: LayerWiseLoadCounter,
        ring: Ring,
        counters: Counters,
        *,
        layer_wise: bool,
        timeout: float,
    ) -> None:
        """`timeout` bounds how long `reset` and `close` wait, in seconds."""
        self._counter = counter
        self._ring = ring
        self._layers = counter.num_layers
        self._counters = counters
        self._layer_wise = layer_wise
        self._timeout = timeout
        self._queued: dict[str, Prepared] = {}
        self._worker = WorkerPool(1, "sgkv-linker-load", backlog=_BACKLOG)
        self._running: set[Future[None]] = set()

    def queue(self, rid: str, load: Prepared) -> None:
        """Take over a load; released when it is done or cancelled."""
        self.cancel(rid)
        self._queued[rid] = load

    @property
    def waiting(self) -> bool:
        """Whether anything is queued."""
        return bool(self._queued)

    def cancel(self, rid: str) -> bool:
        """False where it has been started or is not known."""
        load = self._queued.pop(rid, None)
        if load is not None:
            load.release()
        return load is not None

    def start(self, ready: Sequence[Any]) -> int:
        """Start everything queued as one batch; its index at the counter, -1 for nothing."""
        if not self._queued:
            return -1
        batch, self._queued = list(self._queued.values()), {}
        index: int = self._counter.update_producer()
        future = self._worker.submit(lambda: self._load(index, batch, ready))
        if future is None:
            self._release(batch)
            self._counter.fail(index, RuntimeError("no thread to load with"))
            return index
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        if not self._layer_wise:
            wait([future])
        return index

    def reset(self) -> None:
        """Drop what is queued and wait for what is under way: memory copies, which end."""
        for rid in list(self._queued):
            self.cancel(rid)
        wait(list(self._running), self._timeout)

    def close(self) -> None:
        self.reset()
        self._worker.close(self._timeout)

    def _load(self, index: int, batch: Sequence[Prepared], ready: Sequence[Any]) -> None:
        """Loading thread. Whatever happens, every layer ends, and then nothing is written any more."""
        done = False
        try:
            with contained("loading", self._counters):
                self._ring.follow(ready)
                sources = [source for load in batch for source in load.sources]
                load_layers(sources, self._layers, self._ring, lambda at: self._counter.complete(index, at))
                done = True
            if not done:
                self._ring.drain()
        finally:
            if not done:
                self._counter.fail(index, RuntimeError("the layers could not be copied"))
            self._release(batch)

    @staticmethod
    def _release(batch: Sequence[Prepared]) -> None:
        for load in batch:
            load.release()


def _near(move: PageMove, early: Early | None, prepared: Prepared) -> list[PageMove]:
    """Take what lies in host memory; the parts of the move that do not."""
    left = move.parts(_take(move, early, prepared))
    return [rest for part in left for rest in part.parts(_lease(part, prepared))]


def _take(move: PageMove, early: Early | None, prepared: Prepared) -> list[int]:
    """Take what was read ahead; the pages that were not."""
    if early is None:
        return list(range(len(move.span.hashes)))
    views = [early.page(move.session, page_hash) for page_hash in move.span.hashes]
    here = [at for at, view in enumerate(views) if view is not None]
    prepared.add(move, here, [view for view in views if view is not None])
    return [at for at, view in enumerate(views) if view is None]


def _lease(move: PageMove, prepared: Prepared) -> list[int]:
    """Hold what the cpu tier has; the pages it does not."""
    leases = move.session.lease(move.span)
    for lease in filter(None, leases):
        prepared.held.callback(lease.release)
    here = [at for at, lease in enumerate(leases) if lease is not None]
    prepared.add(move, here, [lease.view for lease in leases if lease is not None])
    return [at for at, lease in enumerate(leases) if lease is None]
