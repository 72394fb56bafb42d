"""Loads: what can fail is done before one is queued, what is left is copied while the model computes.

Pages in the cpu tier are leased where they lie and go to the device layer by layer. All others are read,
verified and put on the device at once, while the engine waits: a load that fails after it was queued
would cost its client an error, one that is refused costs a computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter

from sgkv.backends.cpu import Lease
from sgkv.backends.deadline import Deadline
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.reasons import MissReason
from sgkv.sglang.linking.transfers import PageMove
from sgkv.transfer.chunks import fetch
from sgkv.transfer.layers import HostPages, LayerSource, load_layers
from sgkv.transfer.staging import Ring

_BACKLOG = 64
"""Batches that may wait for the loading thread; SGLang has one or two under way."""


@dataclass(slots=True)
class Prepared:
    """One request's load: everything it needs is in memory or on the device already."""

    sources: list[LayerSource] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)

    def release(self) -> None:
        for lease in self.leases:
            lease.release()
        self.leases, self.sources = [], []


class Preparation:
    """Prepares loads, one at a time. Scheduler thread."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def prepare(
        self, moves: Sequence[PageMove], ready: Sequence[Any], deadline: Deadline
    ) -> Prepared | MissReason:
        """Lease or fetch every page; why one of them cannot be had, else.

        Slots are written after the device has come to the events `ready`. Fetched pages are on the
        device when this returns, whatever it returns.
        """
        self._ring.follow(ready)
        with ExitStack() as unless_complete:
            prepared = Prepared()
            unless_complete.callback(prepared.release)
            reason = self._all(moves, prepared, deadline)
            if reason is not None:
                return reason
            unless_complete.pop_all()
        return prepared

    def _all(self, moves: Sequence[PageMove], prepared: Prepared, deadline: Deadline) -> MissReason | None:
        missing = [(move, self._lease(move, prepared)) for move in moves]
        for move, pages in missing:
            for run in _runs(pages):
                reason = self._fetch(move, run, deadline)
                if reason is not None:
                    return reason
        return None

    def _lease(self, move: PageMove, prepared: Prepared) -> list[int]:
        """Hold what the cpu tier has; the pages it does not."""
        leases = move.session.lease(move.span)
        held = [at for at, lease in enumerate(leases) if lease is not None]
        views = [lease.view for lease in leases if lease is not None]
        prepared.leases += [lease for lease in leases if lease is not None]
        if held:
            slots = move.slots if len(held) == len(leases) else _slots_of(move, held)
            prepared.sources.append(HostPages(move.pool.pages, move.pool.layers, slots, views))
        return [at for at, lease in enumerate(leases) if lease is None]

    def _fetch(self, move: PageMove, run: range, deadline: Deadline) -> MissReason | None:
        part = move.part(run.start, run.stop)
        return fetch(part.session, part.span, part.pool.pages, part.slots, self._ring, deadline)


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


def _slots_of(move: PageMove, pages: Sequence[int]) -> torch.Tensor:
    return move.slots.view(-1, move.pool.page_size)[list(pages)].flatten()


def _runs(pages: Sequence[int]) -> list[range]:
    """Neighbouring pages together."""
    groups = groupby(enumerate(pages), lambda item: item[1] - item[0])
    return [range((run := [page for _, page in group])[0], run[-1] + 1) for _, group in groups]
