"""The envelope around a coded blob: its head, encoded, decoded and refused (docs/format.md).

A head of whole 4 KiB blocks, then the stored sections back to back: the blob's own header, then each of
its pages, coded by itself so that one page can be read alone. The head says how each section is stored,
and has a checksum of each as it is stored: an envelope can be verified and copied without any key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

import msgspec
from xxhash import xxh3_128, xxh3_128_digest

from sgkv.chunk.header import BLOCK, CODED_MAGIC, HeaderError, UnknownFormatError

VERSION = 1
CHECKSUM_BYTES = 16
CIPHER = "aes-256-gcm"
"""The only one (sealing.py), with these sizes:"""
TAG_BYTES, SALT_BYTES, KEY_BYTES = 16, 16, 32

_PROLOGUE = struct.Struct("<8sHHII")
_SEAL = _PROLOGUE.size
_META = _SEAL + CHECKSUM_BYTES
_SIZE = struct.Struct("<I")
_BUDGET = 1024
"""Bytes for everything in the head that does not grow with the number of sections."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a head says."""

    codecs: tuple[str, ...]
    """How a page was made smaller, in order; empty where it was not."""
    page_bytes: int
    """Of a page before it was coded."""
    header_bytes: int
    """Of the blob's own header, the first section, which is never made smaller."""
    sizes: bytes
    """Stored bytes of each section, four bytes each, little-endian."""
    cipher: str = ""
    key_id: str = ""
    """Of the key that opens `wrapped`, as its provider names it."""
    wrapped: bytes = b""
    """The data key, which only the provider of `key_id` can open."""
    salt: bytes = b""
    """Makes the key of this blob alone of the data key."""

    @property
    def section_sizes(self) -> tuple[int, ...]:
        return tuple(size for (size,) in _SIZE.iter_unpack(self.sizes))


class Head(msgspec.Struct, frozen=True):
    """A head as it was read."""

    envelope: Envelope
    meta: bytes
    """The fields as they lie in the blob: what a cipher is bound to."""
    checksums: bytes
    """xxh3-128 of each section as it is stored, 16 bytes each."""
    size: int
    """Bytes of the head."""

    @property
    def offsets(self) -> list[int]:
        """Where each section begins in the blob, and where the last one ends."""
        return list(accumulate(self.envelope.section_sizes, initial=self.size))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


def head_size(sections: int) -> int:
    """Bytes of the head of an envelope of so many sections."""
    return -(-(_BUDGET + sections * (CHECKSUM_BYTES + _SIZE.size)) // BLOCK) * BLOCK


def pack_sizes(sizes: Sequence[int]) -> bytes:
    """`Envelope.sizes` of sections of `sizes` bytes."""
    return b"".join(map(_SIZE.pack, sizes))


def encode_meta(envelope: Envelope) -> bytes:
    """The fields as they will lie in the head, for a cipher to be bound to."""
    return _encode(envelope)


def encode_head(meta: bytes, sections: Sequence[memoryview | bytes]) -> bytes:
    """The head before `sections`, as they are stored. Raises HeaderError where the fields are too many."""
    size = head_size(len(sections))
    checksums = b"".join(map(xxh3_128_digest, sections))
    if _META + len(meta) + len(checksums) > size:
        raise HeaderError(f"envelope fields of {len(meta)} bytes do not fit: shorten the key's name")
    prologue = _PROLOGUE.pack(CODED_MAGIC, VERSION, 0, size, len(meta))
    body = (meta + checksums).ljust(size - _META, b"\0")
    return prologue + _seal(prologue, body) + body


def is_envelope(raw: memoryview | bytes) -> bool:
    """Whether bytes begin as an envelope does."""
    return raw[: len(CODED_MAGIC)] == CODED_MAGIC


def stated_size(raw: memoryview) -> int:
    """Bytes of the head that these first bytes begin, by its own word.

    Raises HeaderError for what is no envelope, UnknownFormatError for one of another version.
    """
    return _prologue(raw)[0]


def decode_head(raw: memoryview) -> Head:
    """Read a head from exactly its own bytes.

    Raises HeaderError for anything but a head that this version wrote, UnknownFormatError for one of
    another version.
    """
    size, meta_size = _prologue(raw)
    if size != len(raw) or _META + meta_size > size:
        raise HeaderError(f"the envelope's head says {size} bytes, {len(raw)} are here")
    if raw[_SEAL:_META] != _seal(raw[:_SEAL], raw[_META:]):
        raise HeaderError("the checksum of the envelope's head does not match")
    meta = bytes(raw[_META : _META + meta_size])
    try:
        envelope = _decode(meta)
    except (msgspec.MsgspecError, ValueError) as error:
        raise HeaderError(f"envelope fields: {error}") from error
    sections, rest = divmod(len(envelope.sizes), _SIZE.size)
    end = _META + meta_size + sections * CHECKSUM_BYTES
    if rest or sections < 2 or end > size or head_size(sections) != size:
        raise HeaderError("envelope fields describe no blob")
    if min(envelope.page_bytes, envelope.header_bytes, *envelope.section_sizes) < 1:
        raise HeaderError("envelope fields describe no sections")
    header, *pages = envelope.section_sizes
    if header > envelope.header_bytes + TAG_BYTES or max(pages) > envelope.page_bytes + TAG_BYTES:
        raise HeaderError("envelope fields describe sections that are larger than what is in them")
    return Head(envelope, meta, bytes(raw[_META + meta_size : end]), size)


def _prologue(raw: memoryview) -> tuple[int, int]:
    """(bytes of the head, of its fields)."""
    if len(raw) < _META or not is_envelope(raw):
        raise HeaderError("no envelope")
    _, version, flags, size, meta_size = _PROLOGUE.unpack(raw[:_SEAL])
    if version != VERSION or flags:
        raise UnknownFormatError(
            f"envelope version {version} flags {flags}: this reader knows version {VERSION}"
        )
    return size, meta_size


def _seal(prologue: memoryview | bytes, body: memoryview | bytes) -> bytes:
    digest = xxh3_128(prologue)
    digest.update(body)
    return digest.digest()
