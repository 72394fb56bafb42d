"""Pieces of a prompt whose KV may be known wherever they stand: documents between separators, or windows.

A piece is named by its own tokens and nothing before them: by the page hashes that it would have as a
prompt of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sgkv.keys import hash_pages

SEGMENT_TOKENS = 256
"""Of a window."""
_BASE = 0x9E3779B97F4A7C15 | 1
"""Odd, so that it has an inverse modulo 2^64."""
_INVERSE = pow(_BASE, -1, 1 << 64)

Ids = Sequence[int]


class Piece(NamedTuple):
    """Tokens `start` to `stop` of a prompt."""

    start: int
    stop: int
    hashes: tuple[str, ...]
    """Of its pages; the last tokens, which fill none, are no part of it."""


def documents(tokens: Ids, separator: Ids, page_tokens: int) -> list[Piece]:
    """What stands between separators, in whole pages; what follows the last one is the question, and none."""
    ends = _occurrences(tokens, separator)
    starts = [0, *(end + len(separator) for end in ends)]
    return [
        piece
        for start, end in zip(starts, ends, strict=False)
        if (piece := _piece(tokens, start, end, page_tokens))
    ]


def _piece(tokens: Ids, start: int, end: int, page_tokens: int) -> Piece | None:
    stop = end - (end - start) % page_tokens
    return Piece(start, stop, tuple(hash_pages(tokens[start:stop], page_tokens))) if stop > start else None


def _occurrences(tokens: Ids, wanted: Ids) -> list[int]:
    """Where `wanted` begins, without overlap."""
    row, size = np.asarray(tokens, np.int64), len(wanted)
    if not size or len(row) < size:
        return []
    hits = np.ones(len(row) - size + 1, bool)
    for at, token in enumerate(wanted):
        hits &= row[at : len(row) - size + 1 + at] == token
    found: list[int] = []
    for at in np.flatnonzero(hits).tolist():
        if not found or at >= found[-1] + size:
            found.append(at)
    return found


class Windows:
    """Windows of 256 tokens that are known, found anywhere in a prompt by rolling fingerprints.

    A fingerprint is looked up for every position at once; one that is known is then proved by the hashes of
    its tokens. Bounded: of more than `most` the oldest are forgotten. Not thread-safe.
    """

    def __init__(self, page_tokens: int, most: int = 100_000) -> None:
        self._page_tokens = page_tokens
        self._most = most
        self._known: dict[int, tuple[str, ...]] = {}

    def learn(self, tokens: Ids) -> list[Piece]:
        """Know the windows of a text from its start on; returns them."""
        pieces = [
            Piece(at, at + SEGMENT_TOKENS, self._hashes(tokens, at))
            for at in range(0, len(tokens) - SEGMENT_TOKENS + 1, SEGMENT_TOKENS)
        ]
        prints = fingerprints(tokens)
        for piece in pieces:
            self._known[int(prints[piece.start])] = piece.hashes
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return pieces

    def find(self, tokens: Ids) -> list[Piece]:
        """Known windows in a prompt, from its start on, without overlap."""
        found, free = [], 0
        for at, name in self._candidates(tokens):
            if at >= free and self._hashes(tokens, at) == name:
                found.append(Piece(at, at + SEGMENT_TOKENS, name))
                free = at + SEGMENT_TOKENS
        return found

    def _candidates(self, tokens: Ids) -> Iterator[tuple[int, tuple[str, ...]]]:
        prints = fingerprints(tokens)
        known = np.fromiter(self._known, np.uint64, len(self._known))
        for at in np.flatnonzero(np.isin(prints, known)).tolist():
            yield at, self._known[int(prints[at])]

    def _hashes(self, tokens: Ids, at: int) -> tuple[str, ...]:
        return tuple(hash_pages(tokens[at : at + SEGMENT_TOKENS], self._page_tokens))


def fingerprints(tokens: Ids, window: int = SEGMENT_TOKENS) -> npt.NDArray[np.uint64]:
    """Of every window of a prompt: the sum of token * base^place, modulo 2^64 (Rabin and Karp).

    All at once: sums from the start are differences apart, and a power of the base sets each back to its
    own place.
    """
    row = np.asarray(tokens, np.uint64) + np.uint64(1)
    if len(row) < window:
        return np.empty(0, np.uint64)
    sums = np.concatenate([[np.uint64(0)], np.cumsum(row * _powers(_BASE, len(row)), dtype=np.uint64)])
    placed: npt.NDArray[np.uint64] = (sums[window:] - sums[:-window]) * _powers(
        _INVERSE, len(row) - window + 1
    )
    return placed


def _powers(base: int, count: int) -> npt.NDArray[np.uint64]:
    factors = np.full(count, base % (1 << 64), np.uint64)
    factors[0] = 1
    powers: npt.NDArray[np.uint64] = np.cumprod(factors, dtype=np.uint64)
    return powers
