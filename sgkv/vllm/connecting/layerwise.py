"""Loads while the model computes: pages that are held in memory, copied layer by layer."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sgkv.backends.cpu import Lease
from sgkv.backends.workers import WorkerPool
from sgkv.boundary import contained
from sgkv.counters import Counters
from sgkv.transfer.layers import HostPages, load_layers
from sgkv.transfer.staging import Ring
from sgkv.vllm.connecting.messages import Load
from sgkv.vllm.connecting.pending import blocks_of
from sgkv.vllm.connecting.shelves import Shelves

_BACKLOG = 16


@dataclass(slots=True)
class _Batch:
    """The loads of one step."""

    leases: Sequence[Lease]
    blocks: set[int]
    requests: set[str]
    pages: int
    arrived: int = 0
    """Layers that are in place."""
    over: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def tell(self, layer: int) -> None:
        with self.changed:
            self.arrived = layer + 1
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def wait(self, layers: int, seconds: float) -> bool:
        """Whether so many layers are in place, at the latest after `seconds`."""
        with self.changed:
            self.changed.wait_for(lambda: self.arrived >= layers or self.over, seconds)
            return self.arrived >= layers


class LayerwiseLoads:
    """At most one batch at a time, that of the step. Worker's main thread, but for `_copy`.

    Nothing of it can fail but the copies themselves: what is missing then is computed anew, and nothing
    that was computed from it is stored.
    """

    def __init__(self, shelves: Shelves, ring: Ring, counters: Counters, seconds: float) -> None:
        """`seconds` bound how long one layer is waited for. `shelves` has one group."""
        self._shelves = shelves
        self._ring = ring
        self._counters = counters
        self._seconds = seconds
        group = shelves.all[0].group
        self._places = {name: at for at, name in enumerate(group.layers)}
        self._worker = WorkerPool(1, "sgkv-connector-layers", backlog=_BACKLOG)
        self._batch: _Batch | None = None
        self._lost: set[int] = set()
        self.tainted: set[str] = set()
        """Requests that computed with pages that did not arrive, until they are forgotten."""

    def start(self, loads: Sequence[tuple[Load, Mapping[str, Lease]]], ready: Any) -> None:
        """Begin to copy pages out of their leases, which are released at the end."""
        leases = [lease for _, kept in loads for lease in kept.values()]
        blocks = set().union(*(blocks_of(load.pages.tables) for load, _ in loads))
        pages = sum(len(load.pages.hashes) for load, _ in loads)
        self._batch = _Batch(leases, blocks, {load.pages.request for load, _ in loads}, pages)
        if self._worker.submit(partial(self._copy, self._batch, loads, ready)) is None:
            self._release(self._batch)

    def wait(self, layer: str) -> None:
        """Until a layer of the step's loads is in place."""
        place = self._places.get(layer)
        if self._batch is not None and place is not None:
            self._batch.wait(place + 1, self._seconds)

    def finish(self) -> None:
        """The model has run: what did not arrive is lost."""
        batch, self._batch = self._batch, None
        if batch is not None and not batch.wait(len(self._places), self._seconds):
            self._counters.add("failed_loads", batch.pages)
            self._lost |= batch.blocks
            self.tainted |= batch.requests

    def take_lost(self) -> set[int]:
        """Blocks whose loads failed since the last time."""
        lost, self._lost = self._lost, set()
        return lost

    def close(self, timeout: float) -> bool:
        return self._worker.close(timeout)

    def _copy(self, batch: _Batch, loads: Sequence[tuple[Load, Mapping[str, Lease]]], ready: Any) -> None:
        try:
            with contained("layer-wise loading", self._counters):
                self._ring.follow([ready])
                sources = [source for load, kept in loads for source in self._sources(load, kept)]
                load_layers(sources, len(self._places), self._ring, batch.tell)
        finally:
            self._ring.drain()
            self._release(batch)

    def _sources(self, load: Load, kept: Mapping[str, Lease]) -> Iterator[HostPages]:
        for move in self._shelves.moves(load.pages, range(load.first, load.stop), whole=False):
            pages: Any = move.shelf.pages
            layers = {layer: layer for layer in range(pages.layers)}
            yield HostPages(pages, layers, move.slots, [kept[page].view for page in move.span.hashes])

    @staticmethod
    def _release(batch: _Batch) -> None:
        for lease in batch.leases:
            lease.release()
        batch.end()
