"""The shape and byte order of a page."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property


class Order(enum.Enum):
    """How the rows of a plane follow each other. A row is one head of one token in one layer.

    The K plane of a page comes first, then its V plane; MLA has one plane. The first three are
    permutations of each other, so a reader with another order converts. OPAQUE bytes (recurrent
    state, packed formats) only fit a reader with the identical geometry.
    """

    LAYER = "layer"
    """`[layer][token][head]`, the canonical order."""
    TOKEN = "token"
    """`[token][layer][head]`"""
    HEAD = "head"
    """`[head][token][layer]`"""
    OPAQUE = "opaque"


AXES = {
    Order.LAYER: ("layer", "token", "head"),
    Order.TOKEN: ("token", "layer", "head"),
    Order.HEAD: ("head", "token", "layer"),
}


@dataclass(frozen=True)
class PageLayout:
    """One page of one pool on one rank, as its owner lays it out in memory."""

    order: Order
    dtype: str
    """Logical dtype, e.g. ``bfloat16``."""
    tokens: int
    layers: int
    heads: int
    """Heads on this rank; 1 for MLA."""
    rows: tuple[int, ...]
    """Bytes of one row, one entry a plane: (K, V), (latent,), or the runs of an opaque page."""

    def __post_init__(self) -> None:
        if min((self.tokens, self.layers, self.heads, *self.rows), default=0) < 1 or not self.rows:
            raise ValueError(f"a page layout has positive dimensions and at least one plane: {self}")

    @cached_property
    def plane_bytes(self) -> tuple[int, ...]:
        return tuple(self.tokens * self.layers * self.heads * row for row in self.rows)

    @cached_property
    def page_bytes(self) -> int:
        return sum(self.plane_bytes)

    @property
    def geometry(self) -> str:
        """Everything but the byte order, for the namespace."""
        return f"L{self.layers} T{self.tokens} H{self.heads} rows {','.join(map(str, self.rows))}"

    def shape(self) -> tuple[int, int, int]:
        """Sizes of the axes of one plane, outermost first. Not for OPAQUE."""
        sizes = {"layer": self.layers, "token": self.tokens, "head": self.heads}
        first, second, third = AXES[self.order]
        return sizes[first], sizes[second], sizes[third]

    def converts_to(self, other: PageLayout) -> bool:
        """Whether pages of this layout can be rearranged into `other` without loss."""
        same = (self.dtype, self.tokens, self.layers, self.heads, self.rows) == (
            other.dtype, other.tokens, other.layers, other.heads, other.rows,
        )  # fmt: skip
        return same and (self.order is other.order or Order.OPAQUE not in (self.order, other.order))
