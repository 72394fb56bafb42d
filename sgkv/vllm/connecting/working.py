"""A worker's side of the connector: it carries out the orders of each step on its own rank's KV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sgkv.boundary import contained
from sgkv.config import Config
from sgkv.model import ModelIdentity
from sgkv.store.base import PageStore
from sgkv.transfer.staging import Ring
from sgkv.vllm.connecting.groups import Group
from sgkv.vllm.connecting.layerwise import LayerwiseLoads
from sgkv.vllm.connecting.loads import Loads
from sgkv.vllm.connecting.lookups import Held, Lookups
from sgkv.vllm.connecting.messages import Answer, Load, Lookup, Save
from sgkv.vllm.connecting.saves import Saves
from sgkv.vllm.connecting.shelves import Rank, Shelves, device_blocks, recorded

_CLOSE_SECONDS = 15.0
_HELD_SHARE = 4
"""At most one of so many bytes of the cpu tier is kept for loads that wait for their step."""


class Working:
    """One a worker, whose main thread calls it, in the order of these methods in each step."""

    def __init__(
        self, store: PageStore, config: Config, model: ModelIdentity, rank: Rank, groups: Sequence[Group],
        page_tokens: int, tensors: Mapping[str, torch.Tensor],
    ) -> None:  # fmt: skip
        """`tensors` are vLLM's, by layer. Raises ValueError where they are not what `groups` says."""
        self.store = store
        pages = {
            group.index: device_blocks([tensors[name] for name in group.layers], group.shape, page_tokens)
            for group in groups
        }
        self._device = next(iter(tensors.values())).device
        self._shelves = Shelves(store, config, model, rank, groups, pages, page_tokens)
        self._open_lanes(config, page_tokens)

    def _open_lanes(self, config: Config, page_tokens: int) -> None:
        """The staging memory, and the threads that use it."""
        counters, times, settings = self.store.counters, config.engine, config.linker
        chunk = max(shelf.pages.page_bytes for shelf in self._shelves.all)
        chunk *= max(1, config.chunk_tokens // page_tokens)
        reading, writing = Ring(self._device, chunk * settings.staging_chunks), Ring(self._device, chunk)
        for buffer in (*reading.buffers, *writing.buffers):
            self.store.register_memory(buffer.view)
        arena = next((tier.arena for tier in self.store.tiers if tier.arena is not None), None)
        layer_wise = arena is not None and settings.layer_wise and len(self._shelves.all) == 1
        capacity = arena.stats().capacity_bytes if arena is not None else 0
        self._held = Held(capacity // _HELD_SHARE) if layer_wise else None
        self._lookups = Lookups(self._shelves, counters, times.exists_deadline, self._held)
        self._loads = Loads(self._shelves, reading, counters, times.get_deadline)
        self._layers = None
        if self._held is not None:
            ring = Ring(self._device, chunk)
            self._layers = LayerwiseLoads(self._shelves, ring, counters, times.get_deadline)
        self._saves = Saves(
            self._shelves, writing, counters,
            exists_deadline=times.exists_deadline, set_deadline=times.set_deadline,
        )  # fmt: skip

    def before(self, revoked: Sequence[int], forgotten: Sequence[str], *, reset: bool = False) -> None:
        """Before anything writes to blocks: saves that read them, and requests that have ended."""
        self._saves.revoke(revoked)
        if reset:
            self._shelves.reset()
        for request in forgotten:
            self._lookups.forget(request)
            if self._layers is not None:
                self._layers.tainted.discard(request)

    def start(self, lookups: Sequence[Lookup], loads: Sequence[Load]) -> None:
        """Before the model computes where some loads are layer-wise, else after."""
        for lookup in lookups:
            self._lookups.submit(lookup)
        if not loads:
            return
        ready = recorded(self._device)
        layered = [load for load in loads if load.layer_wise]
        if layered and self._layers is not None:
            self._layers.start([(load, self._kept(load)) for load in layered], ready)
        for load in loads:
            if not load.layer_wise:  # another rank may not have kept its pages, so none uses them
                self._lookups.forget(load.pages.request)
                self._loads.submit(load, ready)

    def wait_for_layer(self, layer: str) -> None:
        """A layer is about to read its KV."""
        if self._layers is not None:
            self._layers.wait(layer)

    def after(self, saves: Sequence[Save]) -> None:
        """The model has been given its work."""
        tainted: set[str] = set()
        if self._layers is not None:
            self._layers.finish()
            tainted = self._layers.tainted
        for save in saves:
            if save.pages.request in tainted:
                self._saves.refuse(save)
        self._saves.submit([save for save in saves if save.pages.request not in tainted], self._device)

    def loaded(self) -> dict[str, bool]:
        """Requests whose loads between steps have ended, and whether all of it is there."""
        return self._loads.take()

    def lost_blocks(self) -> set[int]:
        """Blocks of layer-wise loads that failed."""
        return self._layers.take_lost() if self._layers is not None else set()

    def answers(self) -> dict[int, Answer]:
        """To lookups, by number, since the last time."""
        return self._lookups.take()

    def ended(self) -> Counter[int]:
        """Saves that are over, since the last time."""
        return self._saves.take()

    def flush(self, timeout: float) -> bool:
        """Wait until everything that was to be stored is in the tiers; False when time ran out."""
        return self._saves.wait(timeout) and self.store.flush(timeout)

    def close(self) -> None:
        """Store what is queued, as far as that goes in some seconds, and end the threads."""
        self._lookups.close(_CLOSE_SECONDS)
        self._loads.close(_CLOSE_SECONDS)
        if self._layers is not None:
            self._layers.close(_CLOSE_SECONDS)
        self._saves.close(_CLOSE_SECONDS)
        if self._held is not None:
            self._held.close()
        with contained("closing the store", self.store.counters):
            self.store.close()

    def _kept(self, load: Load) -> Mapping[str, Any]:
        assert self._held is not None
        return self._held.take(load.pages.request)
