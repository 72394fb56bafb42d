"""Segments on the tiers of a store: pages of a pool of their own, which no prefix is ever read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from sgkv.backends.deadline import Deadline
from sgkv.blend.engine import KV, Decoder
from sgkv.blend.segments import Piece
from sgkv.chunk.blob import Page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.identity import Namespace
from sgkv.store.base import PageStore
from sgkv.store.span import Span

POOL = "segment"
"""Keys are as if each piece began at position 0, and know nothing of what stood before it."""


class SegmentStore:
    """Of one model. Opt-in: pages are in the namespace of the model's KV but for the pool."""

    def __init__(self, store: PageStore, namespace: Namespace, model: Decoder, producer: str) -> None:
        """`namespace` is that of the model's KV, whose architecture knows the positions' scaling."""
        row = model.dim * 4
        self._shape = model.layers, namespace.page_tokens, model.kv_heads, model.dim
        layout = PageLayout(
            Order.LAYER, "float32", namespace.page_tokens, model.layers, model.kv_heads, (row, row)
        )
        self._page_tokens = namespace.page_tokens
        self._page_bytes = layout.page_bytes
        self._session = store.open(replace(namespace, pool=POOL), layout, producer)

    def put(self, piece: Piece, kv: KV, deadline: Deadline) -> int:
        """Keep the KV of a piece, computed on its own from position 0; how many of its pages are stored."""
        starts = range(0, kv.tokens, self._page_tokens)
        pages = [self._page(kv.part(at, at + self._page_tokens)) for at in starts]
        return sum(self._session.set(Span(piece.hashes), pages, deadline))

    def get(self, piece: Piece, deadline: Deadline) -> KV | None:
        """The KV of as many leading pages of a piece as there are; None without any.

        A window that is whole but for its last page is one page shorter, not lost.
        """
        blank = [[memoryview(bytearray(self._page_bytes))] for _ in piece.hashes]
        reasons = self._session.get(Span(piece.hashes), blank, deadline)
        there = next((at for at, reason in enumerate(reasons) if reason is not None), len(reasons))
        return self._joined(blank[:there]) if there else None

    def _page(self, kv: KV) -> Page:
        both = torch.stack([kv.keys, kv.values]).contiguous()
        return [memoryview(both.view(torch.uint8).numpy().reshape(-1)).cast("B")]

    def _joined(self, pages: Sequence[Page]) -> KV:
        parts = [torch.frombuffer(page[0], dtype=torch.float32).view(2, *self._shape) for page in pages]
        both = torch.cat(parts, 2)
        return KV(both[0], both[1])
