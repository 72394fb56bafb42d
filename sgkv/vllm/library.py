"""The store of one engine: a shelf for each of its KV cache groups, in the epoch that it is in."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sgkv.backends.deadline import Deadline
from sgkv.chunk.layout import Order, PageLayout
from sgkv.vllm.naming import model_identity, open_pages, private_epoch, row_namespace
from sgkv.vllm.shelves import PageShelf, RowShelf, Shelf, Wanted, group_of

if TYPE_CHECKING:
    from sgkv.config import Config
    from sgkv.store.base import PageStore
    from sgkv.vllm.chains import Chain
    from sgkv.vllm.facts import Engine
    from sgkv.vllm.rows import RowShape

logger = logging.getLogger("sgkv")


class Library:
    """Finds shelves by group. Any thread; `reset` only while nothing is under way."""

    def __init__(
        self, store: PageStore, config: Config, engine: Engine | None, offloading: Any, row_bytes: int
    ) -> None:
        """`offloading` is vLLM's `OffloadingConfig`; `row_bytes` are those of one row of host memory.

        Reads the model's files. Raises ValueError where pages cannot be cut from vLLM's chunks.
        """
        self.store = store
        self._config = config
        self._engine = engine
        self._offloading = offloading
        self._row_bytes = row_bytes
        self._model = model_identity(config, engine.facts if engine else None)
        self._resets = 0
        self._shelves: dict[int, Shelf] = {}
        self._open()

    def shelf(self, group: int) -> Shelf:
        return self._shelves[group]

    def find(self, wanted: Sequence[Wanted], chain: Chain | None, deadline: Deadline) -> list[bytes]:
        """Keys of the chunks that can be read now; `wanted` are sorted by group and position."""
        found: list[bytes] = []
        tokens = 0  # of the group that has most of the prompt
        for group, members in groupby(wanted, key=group_of):
            chunks, shelf = list(members), self._shelves[group]
            flags = shelf.find(chunks, chain, deadline)
            found += [chunk.key for chunk, flag in zip(chunks, flags, strict=True) if flag]
            tokens = max(tokens, sum(flags) * shelf.chunk_tokens)
        first = next(iter(chain.pages(1)), None) if chain else None
        if found and self.store.holds_back(first, tokens):
            found = []
        self.store.counters.add("lookup_chunks", len(found), label="result", value="hit")
        self.store.counters.add("lookup_chunks", len(wanted) - len(found), label="result", value="miss")
        return found

    def reset(self) -> None:
        """From now on KV belongs to weights that only this launch knows."""
        self._resets += 1
        self._open()

    def _open(self) -> None:
        rows = self._shared_rows()
        for group in self._offloading.groups:
            tokens = group.tokens_per_block * self._offloading.cache.blocks_per_chunk
            shelf = self._page_shelf(rows, tokens) if rows else self._row_shelf(group.group_id, tokens)
            self._shelves[group.group_id] = shelf

    def _shared_rows(self) -> RowShape | None:
        """How to read rows, where the configuration asks to share them and that can be done."""
        if self._config.model.numerics != "compatible":
            return None
        if self._engine is None:
            reason = "vLLM's own OffloadingConnector knows no token ids: use SgkvOffloadingConnector"
        else:
            reason = self._engine.facts.unshared
        if reason and not self._resets:
            logger.warning("sgkv: other engines cannot share this one's KV: %s", reason)
        return None if reason or self._engine is None else self._engine.facts.rows

    def _page_shelf(self, rows: RowShape, chunk_tokens: int) -> Shelf:
        assert self._engine is not None
        page_tokens = self._engine.chains.page_tokens
        epoch = private_epoch(self._resets)
        session = open_pages(self.store, self._config, self._model, rows, page_tokens, epoch)
        return PageShelf(session, chunk_tokens, rows)

    def _row_shelf(self, group: int, chunk_tokens: int) -> Shelf:
        epoch = private_epoch(self._resets)
        name = row_namespace(self._config, self._model, self._offloading, group, self._row_bytes, epoch)
        logger.info("sgkv: group %d is namespace %s (%s)", group, name.digest, name)
        layout = PageLayout(Order.OPAQUE, name.kv_dtype, 1, 1, 1, (self._row_bytes,))
        return RowShelf(self.store.open(name, layout, self._model.producer), chunk_tokens)
