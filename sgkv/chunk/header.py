"""The self-describing header of a chunk blob: encode, decode, refuse.

A blob is a header of a whole number of 4 KiB blocks, then its pages back to back. The header is a
fixed prologue and a MessagePack array (docs/format.md); a checksum covers all of it, padding
included, and each page has a checksum of its own so that one page can be read and checked alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
from xxhash import xxh3_128

from sgkv.chunk.layout import Order, PageLayout
from sgkv.identity import FORMAT_VERSION

MAGIC = b"\x89SGKV\r\n\x1a"
CODED_MAGIC = b"\x89SGKE\r\n\x1a"
"""What a coded blob begins with (sgkv/codecs/)."""
BLOCK = 4096
HASH_BYTES, CHECKSUM_BYTES = 32, 16

_PROLOGUE = struct.Struct("<8sHHII")
_SEAL = _PROLOGUE.size
_META = _SEAL + CHECKSUM_BYTES
_META_BUDGET = 512
"""Bytes kept for the prologue and every field that does not grow with the number of pages."""


class HeaderError(ValueError):
    """These bytes are not a chunk header this version may trust."""


class UnknownFormatError(HeaderError):
    """A chunk of a format version, or with flags, that this version does not know: perhaps not damaged."""


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a chunk says of itself."""

    namespace: str
    order: str
    dtype: str
    tokens: int
    layers: int
    heads: int
    rows: tuple[int, ...]
    hashes: bytes
    """Page hashes, 32 bytes a page, in order."""
    checksums: bytes
    """xxh3-128 of each page's stored bytes, 16 bytes a page, big-endian."""
    codecs: tuple[str, ...] = ()
    """Transformations of the body, in the order they were applied; a reader must know them all."""
    expires_at: int = 0
    """Unix seconds; 0 is never."""
    created_at: int = 0
    """Unix seconds."""
    producer: str = ""
    """The engine that computed the pages, for counting hits by origin."""

    @property
    def pages(self) -> int:
        return len(self.hashes) // HASH_BYTES

    def shaped_like(self, layout: PageLayout) -> bool:
        """Whether its pages are exactly `layout`, byte order included; cheaper than comparing layouts."""
        return (
            self.order == layout.order.value
            and self.rows == layout.rows
            and self.dtype == layout.dtype
            and (self.tokens, self.layers, self.heads) == (layout.tokens, layout.layers, layout.heads)
        )

    @property
    def layout(self) -> PageLayout:
        return PageLayout(Order(self.order), self.dtype, self.tokens, self.layers, self.heads, self.rows)

    def hash_of(self, page: int) -> bytes:
        return self.hashes[page * HASH_BYTES : (page + 1) * HASH_BYTES]

    def checksum_of(self, page: int) -> bytes:
        return self.checksums[page * CHECKSUM_BYTES : (page + 1) * CHECKSUM_BYTES]

    def expired(self, now: float) -> bool:
        return bool(self.expires_at) and now >= self.expires_at


_ORDERS = frozenset(order.value for order in Order)

_encode_meta = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(Header).decode


def header_size(pages: int) -> int:
    """Bytes of the header of a blob of `pages`: known before reading, so one read gets it all."""
    needed = _META_BUDGET + pages * (HASH_BYTES + CHECKSUM_BYTES)
    return -(-needed // BLOCK) * BLOCK


def blob_size(pages: int, page_bytes: int) -> int:
    return header_size(pages) + pages * page_bytes


def checksum(page: Sequence[memoryview]) -> bytes:
    """xxh3-128 (big-endian digest) of a page given as the buffers that concatenate to it."""
    digest = xxh3_128()
    for buffer in page:
        digest.update(buffer)
    return digest.digest()


def encode_header(header: Header, into: memoryview) -> None:
    """Write the header into a buffer of exactly `header_size(header.pages)` bytes."""
    meta = _encode_meta(header)
    if _META + len(meta) > len(into) or len(into) != header_size(header.pages):
        raise HeaderError(
            f"header fields of {len(meta)} bytes do not fit {len(into)}: shorten producer or codecs"
        )
    into[:_SEAL] = _PROLOGUE.pack(MAGIC, FORMAT_VERSION, 0, len(into), len(meta))
    into[_META : _META + len(meta)] = meta
    into[_META + len(meta) :] = bytes(len(into) - _META - len(meta))
    into[_SEAL:_META] = _seal(into)


def decode_header(raw: memoryview) -> Header:
    """Read a header from exactly its own bytes.

    Raises HeaderError for anything but a header this version wrote: foreign or newer bytes, any
    flipped bit, a size that does not fit, fields of the wrong type.
    """
    size, meta_size = _sizes(raw)
    if size != len(raw) or _META + meta_size > size:
        raise HeaderError(f"header says {size} bytes, {len(raw)} are here")
    if raw[_SEAL:_META] != _seal(raw):
        raise HeaderError("the header's checksum does not match")
    try:
        header = _decode_meta(raw[_META : _META + meta_size])
    except (msgspec.MsgspecError, ValueError) as error:
        raise HeaderError(f"header fields: {error}") from error
    sizes = (header.tokens, header.layers, header.heads, *header.rows)
    if header.order not in _ORDERS or min(sizes) < 1 or not header.rows:
        raise HeaderError("header fields describe no page")
    if len(header.hashes) % HASH_BYTES or len(header.checksums) != header.pages * CHECKSUM_BYTES:
        raise HeaderError("hashes and checksums do not come in pairs")
    if not header.pages or header_size(header.pages) != size:
        raise HeaderError(f"{header.pages} pages do not have a header of {size} bytes")
    return header


def stored_header_size(raw: memoryview) -> int:
    """Bytes of the header that a blob begins with, by its own word, which only `decode_header` proves.

    `raw` is the blob or its first bytes. Raises HeaderError as `decode_header`.
    """
    return _sizes(raw)[0]


def _sizes(raw: memoryview) -> tuple[int, int]:
    """Bytes of header and fields, of a prologue that this version knows."""
    if len(raw) < _META:
        raise HeaderError(f"{len(raw)} bytes cannot hold a header")
    magic, version, flags, size, meta_size = _PROLOGUE.unpack(raw[:_SEAL])
    if magic == CODED_MAGIC:
        raise UnknownFormatError("a coded blob, which its tier has to open first")
    if magic != MAGIC:
        raise HeaderError("not a chunk: the magic differs")
    if version != FORMAT_VERSION or flags:
        raise UnknownFormatError(
            f"format version {version} flags {flags}: this reader knows version {FORMAT_VERSION}"
        )
    return size, meta_size


def _seal(raw: memoryview) -> bytes:
    digest = xxh3_128(raw[:_SEAL])
    digest.update(raw[_META:])
    return digest.digest()
