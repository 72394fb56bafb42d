"""Where rows lie in a chunk buffer: ``[page][plane][layer][token][row]``, all pages of equal size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

MAX_PAGE_SIZE = 256 * 64
"""Tokens of the largest page: a whole chunk, whose heads may be addressed one by one."""


@dataclass(frozen=True)
class ChunkGeometry:
    """Byte offsets in a chunk of one pool on one rank; the canonical order of `sgkv.chunk.layout`."""

    page_size: int
    """Tokens a page."""
    layers: int
    rows: tuple[int, ...]
    """Bytes of one token in one layer, one entry a plane: (K, V), or (latent,)."""

    def __post_init__(self) -> None:
        if not 1 <= self.page_size <= MAX_PAGE_SIZE:
            raise ValueError(f"a page holds 1 to {MAX_PAGE_SIZE} tokens, not {self.page_size}")

    @cached_property
    def layer_bytes(self) -> tuple[int, ...]:
        """Bytes of one layer of a page, one entry a plane."""
        return tuple(self.page_size * row for row in self.rows)

    @cached_property
    def plane_bytes(self) -> tuple[int, ...]:
        """Bytes of all layers of a page, one entry a plane."""
        return tuple(self.layers * size for size in self.layer_bytes)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each plane begins in its page."""
        return (0, *accumulate(self.plane_bytes[:-1]))

    @cached_property
    def page_bytes(self) -> int:
        return sum(self.plane_bytes)

    def pages(self, tokens: int) -> int:
        """Pages that `tokens` take; the last may be filled in part."""
        return -(-tokens // self.page_size)

    def chunk_bytes(self, tokens: int) -> int:
        """The room that `tokens` take in a chunk: whole pages, whatever the last one holds."""
        return self.pages(tokens) * self.page_bytes
