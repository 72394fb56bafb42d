"""Which pages a chunk has, for those that must name pages and are told of chunks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

_SHORT_BYTES = 16
"""Of a hash, as reports and events name pages."""
_MOST = 100_000
"""Chunks: 25 million tokens."""


class ChunkMembers:
    """Of the chunks that were written in this process, the latest. Any thread."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._chunks: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()

    def note(self, hashes: Sequence[str]) -> None:
        """Pages of one chunk, in order, 64 hex digits each."""
        short = tuple(bytes.fromhex(one[: 2 * _SHORT_BYTES]) for one in hashes)
        with self._lock:
            self._chunks[short[-1]] = short
            if len(self._chunks) > self._most:
                self._chunks.popitem(last=False)

    def pages(self, last: bytes) -> tuple[bytes, ...]:
        """Of the chunk whose last page is this; that page alone where the chunk is not known."""
        with self._lock:
            return self._chunks.get(last, (last,))
