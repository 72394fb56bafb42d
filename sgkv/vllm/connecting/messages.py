"""What the scheduler's side and the workers' side of the connector tell each other (`envelopes`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Tables = Sequence[Sequence[int]]
"""Block ids by KV cache group; 0 is vLLM's null block, where a group keeps nothing."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Consecutive pages of one request, and the blocks that they lie in."""

    request: str
    before: Sequence[str]
    """Hashes of the pages before them."""
    hashes: Sequence[str]
    tables: Tables
    """From the block that holds the first token of the first page on."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Which prefix of these pages can be loaded?"""

    number: int
    request: str
    before: Sequence[str]
    hashes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Load:
    """Fill blocks with tokens from `first` on."""

    pages: Pages
    first: int
    """The first token that is wanted; it may lie within the first page."""
    stop: int
    layer_wise: bool
    """While the model computes, from pages that are held in memory."""


@dataclass(frozen=True, slots=True)
class Save:
    """Store pages that are complete after this step."""

    number: int
    pages: Pages


@dataclass(frozen=True, slots=True)
class Answer:
    """To one lookup, of one rank or of several."""

    pages: int
    """Leading pages that every rank can load."""
    in_memory: int = 0
    """Of those, the leading pages in the cpu tier."""
    held: bool = False
    """All of them are held there, on every rank, until they are loaded."""
    ranks: int = 1

    def __or__(self, other: Answer) -> Answer:
        return Answer(
            min(self.pages, other.pages),
            min(self.in_memory, other.in_memory),
            self.held and other.held and self.pages == other.pages,
            self.ranks + other.ranks,
        )
