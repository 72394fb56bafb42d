"""Where the rows of one KV cache group are kept: as they are, or as pages that SGLang can read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from sgkv.backends.deadline import Deadline
from sgkv.store.base import PageSession
from sgkv.store.span import Span
from sgkv.vllm.chains import Chain
from sgkv.vllm.rows import RowShape, require_fit

_HASH_BYTES = 32


class Wanted(NamedTuple):
    """One chunk of vLLM's: its key and where it ends in its request."""

    key: bytes
    """vLLM's `OffloadKey`: a block hash and four bytes of group."""
    end: int
    """Token after its last one; 0 where vLLM has not said."""


def group_of(chunk: Wanted) -> int:
    """The KV cache group that a chunk belongs to."""
    return int.from_bytes(chunk.key[-4:], "big")


class Shelf(ABC):
    """Chunks of one group in the store. Any thread; no call outlasts its deadline."""

    piece_bytes: ClassVar[int] = 8 << 20
    """Of rows, read or written by one call: pieces are converted side by side."""

    def __init__(self, session: PageSession, chunk_tokens: int) -> None:
        """`chunk_tokens` are the tokens of one of vLLM's offload chunks."""
        self.session = session
        self.chunk_tokens = chunk_tokens

    @abstractmethod
    def find(self, chunks: Sequence[Wanted], chain: Chain | None, deadline: Deadline) -> list[bool]:
        """Which of these chunks can be read now."""

    @abstractmethod
    def read(
        self, chunks: Sequence[Wanted], rows: Sequence[memoryview], chain: Chain | None, deadline: Deadline
    ) -> list[bool]:
        """Fill a row for each chunk; a row of False holds nothing of use."""

    @abstractmethod
    def write(
        self, chunks: Sequence[Wanted], rows: Sequence[memoryview], chain: Chain | None, deadline: Deadline
    ) -> list[bool]:
        """Store a row for each chunk; True where it is stored, or was already."""


class RowShelf(Shelf):
    """Rows as vLLM lays them out, under vLLM's own hashes: for every model, and for vLLM alone."""

    piece_bytes = 64 << 20
    """A tier spreads a batch over threads itself; each batch costs it a hand-over to them."""

    def find(self, chunks: Sequence[Wanted], chain: Chain | None, deadline: Deadline) -> list[bool]:
        return self.session.contains(self._span(chunks), deadline)

    def read(
        self, chunks: Sequence[Wanted], rows: Sequence[memoryview], chain: Chain | None, deadline: Deadline
    ) -> list[bool]:
        reasons = self.session.get(self._span(chunks), [[row] for row in rows], deadline)
        return [reason is None for reason in reasons]

    def write(
        self, chunks: Sequence[Wanted], rows: Sequence[memoryview], chain: Chain | None, deadline: Deadline
    ) -> list[bool]:
        return self.session.set(self._span(chunks), [[row] for row in rows], deadline)

    @staticmethod
    def _span(chunks: Sequence[Wanted]) -> Span:
        return Span([_page_hash(chunk.key[:-4]) for chunk in chunks], None)


def _page_hash(block_hash: bytes) -> str:
    """VLLM's block hashes are chains too; short ones are stretched to the width of a page hash."""
    return (block_hash if len(block_hash) == _HASH_BYTES else sha256(block_hash).digest()).hex()


@dataclass(frozen=True, slots=True)
class _Run:
    """Chunks that follow each other in their request."""

    indices: range
    """Which of the chunks asked for."""
    span: Span


class PageShelf(Shelf):
    """Canonical pages under SGLang's hashes: what one engine stores the other finds."""

    def __init__(self, session: PageSession, chunk_tokens: int, rows: RowShape) -> None:
        super().__init__(session, chunk_tokens)
        self._rows = rows
        self._page_tokens = session.layout.tokens
        self._pages = chunk_tokens // self._page_tokens
        require_fit(self._page_tokens, rows.block_tokens)
        if chunk_tokens % self._page_tokens:
            raise ValueError(
                f"vLLM's offload chunk of {chunk_tokens} tokens is not whole pages of {self._page_tokens}: "
                f'set "block_size" in kv_connector_extra_config to a multiple of {self._page_tokens}'
            )

    def find(self, chunks: Sequence[Wanted], chain: Chain | None, deadline: Deadline) -> list[bool]:
        found = [False] * len(chunks)
        for run in self._runs(chunks, chain):
            pages = self.session.contains(run.span, deadline)
            for place, index in enumerate(run.indices):
                found[index] = all(pages[place * self._pages : (place + 1) * self._pages])
        return found

    def read(
        self, chunks: Sequence[Wanted], rows: Sequence[memoryview], chain: Chain | None, deadline: Deadline
    ) -> list[bool]:
        done = [False] * len(chunks)
        for run in self._runs(chunks, chain):
            scratch = self._scratch(len(run.indices))
            reasons = self.session.get(run.span, self._cut(scratch), deadline)
            for place, index in enumerate(run.indices):
                if not any(reasons[place * self._pages : (place + 1) * self._pages]):
                    self._rows.from_pages(self._chunk_of(scratch, place), rows[index], self._page_tokens)
                    done[index] = True
        return done

    def write(
        self, chunks: Sequence[Wanted], rows: Sequence[memoryview], chain: Chain | None, deadline: Deadline
    ) -> list[bool]:
        done = [False] * len(chunks)
        for run in self._runs(chunks, chain):
            stored = self.session.contains(run.span, deadline)
            if not all(stored):  # what is there need not be converted
                scratch = self._scratch(len(run.indices))
                for place, index in enumerate(run.indices):
                    self._rows.to_pages(rows[index], self._chunk_of(scratch, place), self._page_tokens)
                stored = self.session.set(run.span, self._cut(scratch), deadline)
            for place, index in enumerate(run.indices):
                done[index] = all(stored[place * self._pages : (place + 1) * self._pages])
        return done

    def _runs(self, chunks: Sequence[Wanted], chain: Chain | None) -> Iterator[_Run]:
        """`chunks` ascend by their ends. What cannot be named is in no run."""
        if chain is None:
            return
        ends = [chunk.end for chunk in chunks]
        breaks = [
            at + 1 for at, (one, next_) in enumerate(pairwise(ends)) if next_ - one != self.chunk_tokens
        ]
        for begin, stop in pairwise([0, *breaks, len(ends)]):
            last = ends[stop - 1] // self._page_tokens
            first = last - (stop - begin) * self._pages
            hashes = chain.pages(last)
            if first >= 0 and len(hashes) == last:
                yield _Run(range(begin, stop), Span(hashes[first:], hashes[:first]))

    def _scratch(self, chunks: int) -> memoryview:
        """Not zeroed, unlike a bytearray: one pass over the memory less."""
        return np.empty(chunks * self._pages * self.session.layout.page_bytes, np.uint8).data

    def _cut(self, scratch: memoryview) -> list[list[memoryview]]:
        size = self.session.layout.page_bytes
        return [[scratch[at : at + size]] for at in range(0, len(scratch), size)]

    def _chunk_of(self, scratch: memoryview, place: int) -> memoryview:
        size = self._pages * self.session.layout.page_bytes
        return scratch[place * size : (place + 1) * size]
