"""A server's own list of blobs, and removing many of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sgkv.backends.base import BlobInfo

DELETE_BATCH = 1000
"""Blobs a removal takes; S3 knows this bound ("DeleteObjects", S3 API)."""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of a listing."""

    blobs: Sequence[BlobInfo]
    now: float
    """Unix seconds by the clock that the times of the blobs are of."""


class Listing(Protocol):
    """What can be told of a server's contents without asking for a key. Any thread."""

    def pages(self, prefix: str) -> Iterator[Page]:
        """Blobs whose key starts with `prefix`, a page a request, in no order.

        Raises ConnectionError where a page cannot be had: a part must not pass for the whole.
        """

    def remove(self, keys: Sequence[str]) -> None:
        """Remove up to `DELETE_BATCH` blobs. Raises ConnectionError where some may be left."""
