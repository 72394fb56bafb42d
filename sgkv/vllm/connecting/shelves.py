"""One rank's part of the model in the store: a session and the device's pages for each group."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from sgkv.config import Config
from sgkv.grid import gridded
from sgkv.model import ModelIdentity
from sgkv.store.base import PageSession, PageStore
from sgkv.store.span import Span
from sgkv.vllm.connecting.blocks import BlockPages, slots_of
from sgkv.vllm.connecting.groups import Group
from sgkv.vllm.connecting.heads import HeadPages
from sgkv.vllm.connecting.messages import Pages
from sgkv.vllm.naming import open_pages, private_epoch, shared_namespace
from sgkv.vllm.rows import Packing, RowShape

logger = logging.getLogger("sgkv")


DeviceBlocks = BlockPages | HeadPages


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of this worker among those that split the heads."""

    index: int
    size: int
    kv_heads: int = 0
    """Of the model; 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """One group."""

    group: Group
    session: PageSession
    pages: DeviceBlocks


@dataclass(frozen=True, slots=True)
class Move:
    """Consecutive pages of one group: where they lie in the sequence and on the device."""

    shelf: Shelf
    span: Span
    slots: torch.Tensor
    """int64, `pages.page_size` a page, -1 where nothing is to be written."""


class Shelves:
    """All groups, in the epoch that the engine is in. Any thread, but for `reset`."""

    def __init__(
        self,
        store: PageStore,
        config: Config,
        model: ModelIdentity,
        rank: Rank,
        groups: Sequence[Group],
        pages: Mapping[int, DeviceBlocks],
        page_tokens: int,
    ) -> None:
        """`pages` by the index of their group."""
        self.store = store
        self._config = config
        self._model = model
        self._rank = rank
        self._groups = groups
        self._pages = pages
        self.page_tokens = page_tokens
        self.epoch = 0
        self.all = self._open()

    def reset(self) -> None:
        """From now on KV belongs to weights that only this launch knows."""
        self.epoch += 1
        self.all = self._open()

    def moves(self, pages: Pages, wanted: range | None, *, whole: bool) -> Iterator[Move]:
        """The pages of each group that lie in blocks, and that hold `wanted` tokens; None wants all.

        `whole` leaves out pages of which a part is in no block any more, as behind a window.
        """
        size = self.page_tokens
        start = len(pages.before)
        stop = start + len(pages.hashes)
        span, wanted = Span(pages.hashes, pages.before), wanted or range(start * size, stop * size)
        for shelf, table in zip(self.all, pages.tables, strict=True):
            slots = slots_of(table, shelf.group.shape.block_tokens, start * size, stop * size, wanted)
            present = (slots >= 0).view(-1, size)
            usable = (present.all(1) if whole else present.any(1)).tolist()
            for run in runs(usable):
                yield Move(shelf, span.part(run.start, run.stop), slots[run.start * size : run.stop * size])

    def _open(self) -> list[Shelf]:
        return [Shelf(group, self._session(group), self._pages[group.index]) for group in self._groups]

    def _session(self, group: Group) -> PageSession:
        """Where one group has all layers, other engines and the tier share the pages of a rank that holds
        all heads and, over a fleet's grid, those of any rank.
        """
        size, epoch, rank = self.page_tokens, private_epoch(self.epoch), self._rank
        if len(self._groups) == 1 and (rank.size == 1 or gridded(self._config)):
            return open_pages(
                self.store, self._config, self._model, group.shape, size, epoch,
                rank=rank.index, ranks=rank.size, kv_heads=rank.kv_heads,
            )  # fmt: skip
        name = shared_namespace(self._config, self._model, group.shape, size, epoch)
        if self._rank.size > 1:
            cell = f"layers 0-{group.shape.layers} pp 0/1 tp {self._rank.index}/{self._rank.size}"
            name = replace(name, cell=cell)
        if len(self._groups) > 1:
            layers = " ".join(group.layers)
            name = replace(name, pool=f"vllm group {group.index} window {group.window} of {layers}")
        logger.info("sgkv: group %d is namespace %s (%s)", group.index, name.digest, name)
        return self.store.open(name, group.shape.layout(size), self._model.producer)


def device_blocks(tensors: Sequence[torch.Tensor], shape: RowShape, page_tokens: int) -> DeviceBlocks:
    """The Triton kernels on a GPU, plain torch elsewhere. Raises ValueError for tensors unlike `shape`."""
    fused = shape.packing is Packing.FUSED and tensors[0].device.type != "cpu"
    return (HeadPages if fused else BlockPages)(tensors, shape, page_tokens)


def runs(flags: Sequence[bool]) -> list[range]:
    """Where neighbouring flags are set."""
    found, at = [], 0
    for flag, members in groupby(flags):
        count = len(list(members))
        if flag:
            found.append(range(at, at + count))
        at += count
    return found


def recorded(device: torch.device) -> torch.Event:
    """An event after everything that the device's current stream has been given."""
    module = torch.get_device_module(device)
    event = module.Event()
    event.record(module.current_stream())
    return event
