"""Loading pages that lie in host memory layer by layer, while the model computes.

A layer is announced as soon as it is in place, and the next one is gathered while it is on its way. The
loader never waits for the model, and nothing of it can fail but the copies themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from sgkv.backends.base import Buffer
from sgkv.backends.cpu.copying import copy
from sgkv.transfer.pages import DevicePages
from sgkv.transfer.staging import Event, Ring, StagingBuffer


class LayerSource(Protocol):
    """Something that has to be in place before the model may use it."""

    def send(self, layer: int, ring: Ring) -> Event | None:
        """Begin to send what belongs to one layer of the model; None where nothing does."""


@dataclass(frozen=True, slots=True)
class HostPages:
    """Pages of one pool, each whole and in one piece, and the device slots they belong in."""

    pages: DevicePages
    layers: Mapping[int, int]
    """The pool's layer for each layer of the model that has one."""
    slots: torch.Tensor
    bytes: Sequence[Buffer]
    """One a page."""

    def send(self, layer: int, ring: Ring) -> Event | None:
        """One layer of all pages, in as many pieces as the ring's buffers make of it."""
        own = self.layers.get(layer)
        if own is None:
            return None
        step = max(1, ring.buffer_bytes // self.pages.layer_bytes)
        event = None
        for start in range(0, len(self.bytes), step):
            stop = min(start + step, len(self.bytes))
            buffer = ring.next()
            size = self._gather(own, range(start, stop), buffer)
            slots = self.slots[start * self.pages.page_size : stop * self.pages.page_size]
            event = ring.to_device(buffer, size, partial(self.pages.unpack_layer, own, slots))
        return event

    def _gather(self, layer: int, pages: range, buffer: StagingBuffer) -> int:
        runs, at = self.pages.layer_runs(layer), 0
        for page in pages:
            for run in runs:
                end = at + run.stop - run.start
                copy(buffer.view[at:end], self.bytes[page][run])
                at = end
        return at


def load_layers(
    sources: Sequence[LayerSource], layers: int, ring: Ring, arrived: Callable[[int], None]
) -> None:
    """Send every layer in order and call `arrived(layer)`, in order, when all of one is in place.

    Returns when the last has arrived.
    """
    under_way: deque[tuple[int, Event | None]] = deque()
    for layer in range(layers):
        sent = [source.send(layer, ring) for source in sources]
        # A stream keeps its order: the last event stands for those before it.
        under_way.append((layer, next((event for event in reversed(sent) if event is not None), None)))
        while under_way and _is_done(under_way[0][1]):
            arrived(under_way.popleft()[0])
    for layer, event in under_way:
        if event is not None:
            event.synchronize()
        arrived(layer)


def _is_done(event: Event | None) -> bool:
    return event is None or event.query()
