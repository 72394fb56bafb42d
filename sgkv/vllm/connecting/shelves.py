"""One rank's part of the model in the store: a session and the device's pages for each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from sgkv.config import Config
from sgkv.identity import Namespace
from sgkv.model import ModelIdentity
from sgkv.store.base import PageSession, PageStore
from sgkv.store.span import Span
from sgkv.vllm.connecting.blocks import BlockPages, slots_of
from sgkv.vllm.connecting.groups import Group
from sgkv.vllm.connecting.messages import Pages
from sgkv.vllm.naming import private_epoch, shared_namespace


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of this worker among those that split the heads."""

    index: int
    size: int


@dataclass(frozen=True, slots=True)
class Shelf:
    """One group."""

    group: Group
    session: PageSession
    pages: BlockPages


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
        pages: Mapping[int, BlockPages],
    ) -> None:
        """`pages` by the index of their group."""
        self._store = store
        self._config = config
        self._model = model
        self._rank = rank
        self._groups = groups
        self._pages = pages
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
        size = self.all[0].pages.page_size
        start = len(pages.before)
        stop = start + len(pages.hashes)
        span, wanted = Span(pages.hashes, pages.before), wanted or range(start * size, stop * size)
        for shelf, table in zip(self.all, pages.tables, strict=True):
            slots = slots_of(table, shelf.group.shape.block_tokens, start * size, stop * size, wanted)
            present = (slots >= 0).view(-1, size)
            usable = (present.all(1) if whole else present.any(1)).tolist()
            for run in runs(usable):
                part = slots[run.start * size : run.stop * size]
                yield Move(shelf, span.part(run.start, run.stop), part)

    def _open(self) -> list[Shelf]:
        return [
            Shelf(
                group,
                self._store.open(
                    self._namespace(group), group.shape.layout(self._page_size), self._model.producer
                ),
                self._pages[group.index],
            )
            for group in self._groups
        ]

    @property
    def _page_size(self) -> int:
        return next(iter(self._pages.values())).page_size

    def _namespace(self, group: Group) -> Namespace:
        name = shared_namespace(
            self._config, self._model, group.shape, self._page_size, private_epoch(self.epoch)
        )
        if self._rank.size > 1:
            cell = f"layers 0-{group.shape.layers} pp 0/1 tp {self._rank.index}/{self._rank.size}"
            name = replace(name, cell=cell)
        if len(self._groups) > 1:
            layers = " ".join(group.layers)
            name = replace(name, pool=f"vllm group {group.index} window {group.window} of {layers}")
        return name


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
