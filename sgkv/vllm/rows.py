"""vLLM's rows: how keys and values lie in them, and the way to the canonical page and back.

A row is one offload chunk in vLLM's host memory: for each layer, for each block of the chunk, a page
``[heads][tokens][2 * head_dim]``. Within a page (vLLM 0.32, `v1/attention/backends/`):

=======  ===================================================================  ======================
packing  bytes of one head                                                    in force
=======  ===================================================================  ======================
fused    ``[tokens][K | V]``                                                  GPU backends, LBHNC
vec      K as ``[head_dim][tokens]``, then V as ``[tokens][head_dim]``        CPU without AMX
=======  ===================================================================  ======================

Both are strided views of the same row, so converting is one copy a plane and nothing is interpreted
as a number. Only numpy.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sgkv.chunk.layout import Order, PageLayout

Array = npt.NDArray[Any]


class Packing(enum.Enum):
    """How K and V of one head share a page."""

    FUSED = "fused"
    VEC = "vec"


def require_fit(page_tokens: int, block_tokens: int) -> None:
    """Raise ValueError where pages and vLLM's blocks do not divide each other."""
    if page_tokens < 1 or (page_tokens % block_tokens and block_tokens % page_tokens):
        raise ValueError(
            f"pages of {page_tokens} tokens and vLLM's blocks of {block_tokens} do not divide each other: "
            f'set "page_tokens" in kv_connector_extra_config to a multiple of {block_tokens}, on every engine'
        )


@dataclass(frozen=True, slots=True)
class RowShape:
    """The rows of one engine with one rank and one group of full-attention layers."""

    packing: Packing
    dtype: str
    item: int
    """Bytes of a value."""
    layers: int
    block_tokens: int
    heads: int
    head_dim: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all layers."""
        return 2 * self.layers * self.block_tokens * self.heads * self.head_dim * self.item

    def layout(self, page_tokens: int) -> PageLayout:
        """The canonical page of `page_tokens` tokens."""
        row = self.head_dim * self.item
        return PageLayout(Order.LAYER, self.dtype, page_tokens, self.layers, self.heads, (row, row))

    def to_pages(self, row: memoryview, pages: memoryview, page_tokens: int) -> None:
        """Write the KV of `row` as consecutive canonical pages, which have the same size together."""
        for packed, plane in self._planes(row, pages, page_tokens):
            np.copyto(plane, packed)

    def from_pages(self, pages: memoryview, row: memoryview, page_tokens: int) -> None:
        """The reverse of `to_pages`."""
        for packed, plane in self._planes(row, pages, page_tokens):
            np.copyto(packed, plane)

    def _planes(self, row: memoryview, pages: memoryview, page_tokens: int) -> list[tuple[Array, Array]]:
        """(in the row, in the pages) for K and for V, as views of one shape."""
        blocks = len(pages) // self.block_bytes
        outer, inner = self._split(blocks, page_tokens)
        shape = (self.layers, blocks, self.heads)
        packed = np.frombuffer(row[: len(pages)], f"u{self.item}").reshape(*shape, -1)
        canonical = np.frombuffer(pages, f"u{self.item}").reshape(
            -1, 2, self.layers, page_tokens, self.heads, self.head_dim
        )
        return [
            (
                self._tokens_first(half, outer, inner),
                self._by_block(canonical[:, plane], outer, inner),
            )
            for plane, half in enumerate(self._halves(packed))
        ]

    def _halves(self, packed: Array) -> tuple[Array, Array]:
        """K and V as ``[layer][block][head][token][dim]``."""
        lead, tokens, dim = packed.shape[:3], self.block_tokens, self.head_dim
        if self.packing is Packing.FUSED:
            fused = packed.reshape(*lead, tokens, 2, dim)
            return fused[..., 0, :], fused[..., 1, :]
        halves = packed.reshape(*lead, 2, tokens * dim)
        keys = halves[..., 0, :].reshape(*lead, dim, tokens).swapaxes(-1, -2)
        return keys, halves[..., 1, :].reshape(*lead, tokens, dim)

    def _split(self, blocks: int, page_tokens: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Blocks and pages on one grid: ((pages, blocks in each), (1, tokens)), or the reverse."""
        if page_tokens % self.block_tokens == 0:
            whole = page_tokens // self.block_tokens
            return (blocks // whole, whole), (1, self.block_tokens)
        require_fit(page_tokens, self.block_tokens)
        return (blocks, 1), (self.block_tokens // page_tokens, page_tokens)

    def _tokens_first(self, half: Array, outer: tuple[int, int], inner: tuple[int, int]) -> Array:
        """``[page or block][part][layer][block in page][token][head][dim]`` of a half in the row."""
        split = half.reshape(self.layers, *outer, self.heads, *inner, self.head_dim)
        return split.transpose(1, 4, 0, 2, 5, 3, 6)

    def _by_block(self, plane: Array, outer: tuple[int, int], inner: tuple[int, int]) -> Array:
        """The same axes of a plane ``[page][layer][token][head][dim]`` of the canonical pages."""
        return plane.reshape(outer[0], inner[0], self.layers, outer[1], inner[1], self.heads, self.head_dim)
