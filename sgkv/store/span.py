"""Consecutive pages of a sequence, and how they fall into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple


class ChunkSlice(NamedTuple):
    """The part of one full chunk that lies in a span."""

    last_hash: str
    """Hash of the chunk's last page: the chunk's name."""
    first: int
    """Index in the span of the chunk's first page that lies in it."""
    stop: int
    """Index in the span after the chunk's last page."""
    skipped: int
    """Pages of the chunk that lie before the span."""


@dataclass(frozen=True, slots=True)
class Span:
    """Pages `hashes`, which follow the pages `before` from the start of the sequence."""

    hashes: Sequence[str]
    before: Sequence[str] | None = ()
    """None where the engine does not say: then the position in the sequence is unknown."""

    @property
    def start(self) -> int:
        """Index of the first page in the sequence; 0 where unknown.

        A guess is harmless for reading: a chunk is named by its last page's hash, so at a wrong
        position the name is simply absent. Writers, and readers that know better, look at `before`.
        """
        return len(self.before) if self.before else 0

    @property
    def sequence(self) -> str:
        """Hash of the first page of the sequence, as far as that is known; "" of no pages."""
        return next(iter(self.before or self.hashes), "")

    def part(self, first: int, stop: int) -> Span:
        """Pages `first` to `stop` of the span, where they lie in the sequence."""
        before = None if self.before is None else [*self.before, *self.hashes[:first]]
        return Span(self.hashes[first:stop], before)

    def batches(self, most: int, pages_per_chunk: int) -> Iterator[range]:
        """The pages of the span, at most `most` at a time, cut where chunks end as far as they can be."""
        start, total = 0, len(self.hashes)
        while start < total:
            stop = min(start + most, total)
            ragged = (self.start + stop) % pages_per_chunk
            if stop < total and stop - ragged > start:
                stop -= ragged
            yield range(start, stop)
            start = stop

    def chunks(self, pages_per_chunk: int) -> Iterator[ChunkSlice]:
        """The chunks whose last page lies in the span, in order."""
        offset = self.start % pages_per_chunk
        for end in range(pages_per_chunk - offset, len(self.hashes) + 1, pages_per_chunk):
            first = max(0, end - pages_per_chunk)
            yield ChunkSlice(self.hashes[end - 1], first, end, pages_per_chunk - (end - first))

    def tail(self, pages_per_chunk: int) -> int:
        """Index in the span of the first page whose chunk ends beyond it; len(span) if none."""
        total = self.start + len(self.hashes)
        return max(0, len(self.hashes) - total % pages_per_chunk)

    def chunk_hashes(self, piece: ChunkSlice) -> list[str]:
        """Hashes of all pages of a chunk, those before the span included."""
        before = self.before[len(self.before) - piece.skipped :] if self.before and piece.skipped else ()
        return [*before, *self.hashes[piece.first : piece.stop]]

    def chunk_chain(self, pages_per_chunk: int) -> list[str]:
        """Names of every chunk from the start of the sequence to the end of the span."""
        before = self.before or ()
        return [
            *before[pages_per_chunk - 1 :: pages_per_chunk],
            *(piece.last_hash for piece in self.chunks(pages_per_chunk)),
        ]


def runs(pages: Iterable[int]) -> list[range]:
    """Ascending pages, neighbours together."""
    groups = groupby(enumerate(pages), lambda item: item[1] - item[0])
    return [range((run := [page for _, page in group])[0], run[-1] + 1) for _, group in groups]
