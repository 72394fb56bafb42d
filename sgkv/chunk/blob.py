"""Chunk blobs as backend items: what to write, what to read, and how to check it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_128

from sgkv.backends.base import Buffer, GetItem, Part, PutItem, part_of
from sgkv.backends.buffers import pieces
from sgkv.chunk.convert import convert_in_place
from sgkv.chunk.header import (
    Header,
    HeaderError,
    checksum,
    decode_header,
    encode_header,
    header_size,
)
from sgkv.chunk.layout import PageLayout
from sgkv.keys import packed_hashes
from sgkv.reasons import MissReason

_PIECE = 1 << 20
"""Bytes that a backend may read, and have checked, at a time: no more than stays in a core's own cache."""

Page = Sequence[Buffer]
"""One page: buffers that concatenate to its bytes in the owner's order."""


@dataclass(frozen=True, slots=True)
class BlobIdentity:
    """What is the same for every blob one session writes or accepts."""

    namespace: str
    layout: PageLayout
    producer: str
    clock: Callable[[], float] = time.time
    """Unix seconds, for expiry."""


def put_item(
    key: str,
    identity: BlobIdentity,
    hashes: Sequence[str],
    pages: Sequence[Page],
    expires_at: int,
    after: str | None = None,
) -> PutItem:
    """A blob of `pages`, whose header is filled with checksums when the backend starts to write.

    `after` is the key of the blob before it in its sequence.
    """
    header = memoryview(bytearray(header_size(len(pages))))

    def prepare() -> None:
        layout = identity.layout
        fields = Header(
            namespace=identity.namespace, order=layout.order.value, dtype=layout.dtype,
            tokens=layout.tokens, layers=layout.layers, heads=layout.heads, rows=layout.rows,
            hashes=packed_hashes(hashes), checksums=b"".join(map(checksum, pages)),
            expires_at=expires_at, created_at=int(identity.clock()), producer=identity.producer,
        )  # fmt: skip
        encode_header(fields, header)

    buffers = [header, *(buffer for page in pages for buffer in page)]
    return PutItem(key, buffers, prepare, expires_at, after)


@dataclass(slots=True)
class BlobRead:
    """Some pages of one blob on their way into their final buffers.

    `outcomes` are set by `check`, in the backend's I/O thread, while the bytes are hot in cache:
    None is a verified page. They mean something only when the backend says that the item is OK or
    corrupt; after any other status the buffers are undefined.
    """

    key: str
    identity: BlobIdentity
    total_pages: int
    positions: Sequence[int]
    """Positions in the blob of the wanted pages, ascending."""
    hashes: Sequence[str]
    """Expected hashes of those pages."""
    pages: Sequence[Page]
    expires_at: int = 0
    """Of the blob, once it was checked."""
    header: Buffer = field(init=False)
    outcomes: list[MissReason | None] = field(init=False)
    _runs: list[tuple[int, Buffer]] = field(init=False, default_factory=list)
    """(which wanted page, buffer) for every part after the header."""
    _digests: list[xxh3_128] = field(init=False, default_factory=list)
    _digested: int = field(init=False, default=0)
    """How many of `_runs` are in the digests."""

    def __post_init__(self) -> None:
        self.header = memoryview(bytearray(header_size(self.total_pages)))
        self.outcomes = [MissReason.CORRUPT] * len(self.positions)

    def item(self) -> GetItem:
        """What to ask the backend for."""
        parts = [Part(0, self.header)]
        runs = self._runs = []
        page_bytes, start = self.identity.layout.page_bytes, len(self.header)
        for index, (position, page) in enumerate(zip(self.positions, self.pages, strict=True)):
            offset = start + position * page_bytes
            for buffer in pieces(page, _PIECE):
                parts.append(part_of((offset, buffer)))
                runs.append((index, buffer))
                offset += len(buffer)
        return GetItem(self.key, parts, self.check, self.progress)

    def progress(self, filled: int) -> None:
        """Take the parts that have been filled into the pages' checksums, while they are hot."""
        if not filled:
            self._digests = [xxh3_128() for _ in self.pages]
            self._digested = 0
        digests, runs = self._digests, self._runs
        for at in range(self._digested, filled - 1):
            index, buffer = runs[at]
            digests[index].update(buffer)
        self._digested = max(self._digested, filled - 1)

    def check(self) -> bool:
        """Verify header and pages, and convert pages of another byte order; False if any is bad.

        Inside the landing that filled the pages, as backends call it.
        """
        refusal, header = self._read_header()
        if header is None:
            self.outcomes = [refusal] * len(self.positions)
            self._digests = []
            return False
        self.expires_at = header.expires_at
        if not self._digests:
            self.progress(0)
        self.progress(1 + len(self._runs))
        self.outcomes = self._check_pages(header, [digest.digest() for digest in self._digests])
        self._digests = []
        if not header.shaped_like(self.identity.layout):
            for outcome, page in zip(self.outcomes, self.pages, strict=True):
                if outcome is None:
                    convert_in_place(page, header.layout, self.identity.layout)
        return not any(self.outcomes)

    def _read_header(self) -> tuple[MissReason | None, Header | None]:
        try:
            header = decode_header(self.header)
        except HeaderError:
            return MissReason.CORRUPT, None
        if header.namespace != self.identity.namespace or header.pages != self.total_pages:
            return MissReason.FOREIGN, None
        layout = self.identity.layout
        if header.codecs or not (header.shaped_like(layout) or header.layout.converts_to(layout)):
            return MissReason.LAYOUT, None
        if header.expired(self.identity.clock()):
            return MissReason.EXPIRED, None
        return None, header

    def _check_pages(self, header: Header, digests: Sequence[bytes]) -> list[MissReason | None]:
        whole = len(digests) == self.total_pages
        if whole and header.checksums == b"".join(digests) and header.hashes == packed_hashes(self.hashes):
            return [None] * len(digests)  # positions ascend, so these are all pages in their order
        return [
            self._check_page(header, position, bytes.fromhex(expected), digest)
            for position, expected, digest in zip(self.positions, self.hashes, digests, strict=True)
        ]

    def _check_page(self, header: Header, position: int, expected: bytes, digest: bytes) -> MissReason | None:
        if header.hash_of(position) != expected:
            return MissReason.FOREIGN
        return None if header.checksum_of(position) == digest else MissReason.CORRUPT
