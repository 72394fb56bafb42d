"""From a chunk blob to a coded one and back, in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_128_digest

from sgkv.backends.base import Buffer, PutItem
from sgkv.backends.buffers import after, first
from sgkv.chunk.header import Header, HeaderError, decode_header, encode_header, header_size
from sgkv.chunk.layout import Order, PageLayout
from sgkv.codecs.envelope import (
    CHECKSUM_BYTES,
    CIPHER,
    SALT_BYTES,
    TAG_BYTES,
    Envelope,
    Head,
    encode_head,
    encode_meta,
    pack_sizes,
)
from sgkv.codecs.errors import CodecError, DamagedError, LockedError, SealError
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.quantizing import step_name
from sgkv.codecs.squeezing import Bytes, Chain, chain

if TYPE_CHECKING:
    from sgkv.codecs.sealing import Seal

_ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Of the dtypes whose elements have bytes of different kinds."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a tier's blobs are coded."""

    squeeze: str = ""
    """``zstd:LEVEL``, ``lz4``, or nothing."""
    planes: bool = True
    """Whether the bytes of an element are sorted by their kind first, where its dtype has kinds."""
    locksmith: Locksmith | None = None
    """None where nothing is sealed."""
    quantize: tuple[str, str] = ("", "")
    """Formats of keys and values (`quantizing.FORMATS`), empty for what stays as it is."""
    most_error: float = 1.0
    """Relative error past which a blob is not quantized."""

    @property
    def codes(self) -> bool:
        """Whether anything is done to a blob at all."""
        return bool(self.squeeze) or any(self.quantize) or self.locksmith is not None

    def chain(self, dtype: str) -> Chain:
        """For pages of `dtype`, without losing anything. Raises CodecError where it names no codec."""
        item = _ITEM_BYTES.get(dtype)
        planes = [f"planes:{item}"] if self.planes and self.squeeze and item else []
        return chain([*planes, *([self.squeeze] if self.squeeze else [])])

    def lossy_chain(self, layout: PageLayout) -> Chain | None:
        """For pages of `layout` whose rows are floats; None where nothing is to be quantized, or can be."""
        known = layout.order is not Order.OPAQUE and layout.dtype in _ITEM_BYTES
        if not any(self.quantize) or not known or len(layout.rows) > len(self.quantize):
            return None
        formats = self.quantize[: len(layout.rows)]
        name = step_name(formats, layout.dtype, layout.rows)
        return chain([name, *([self.squeeze] if self.squeeze else [])])


@dataclass(slots=True)
class Writer:
    """Makes coded blobs by a recipe; any thread."""

    recipe: Recipe
    measured: Callable[[float], None] = lambda _error: None
    """Told of the relative error of every blob that was quantized."""
    _chains: dict[str, Chain] = field(default_factory=dict)

    def code(self, item: PutItem) -> PutItem:
        """The coded form of a chunk blob that is prepared.

        Raises HeaderError for what is no chunk blob, LockedError and OSError where there is no key.
        """
        if not item.buffers:
            raise HeaderError("an empty blob")
        header = decode_header(item.buffers[0])
        page_bytes = header.layout.page_bytes
        pages = _pages(header, page_bytes, item.buffers[1:])
        used, sections = self._lossy(header, pages) or self._exact(header, item.buffers[0], pages)
        envelope = self._envelope(item, used, page_bytes, list(map(len, sections)))
        meta = encode_meta(envelope)
        if self.recipe.locksmith is not None:
            seal = self.recipe.locksmith.seal(item.key, envelope, meta)
            sections = [seal.close(place, section) for place, section in enumerate(sections)]
        stored = [memoryview(section).cast("B") for section in sections]
        return PutItem(
            item.key, [memoryview(encode_head(meta, stored)), *stored], None, item.expires_at, item.after
        )

    def _exact(self, header: Header, raw: Buffer, pages: Sequence[Bytes]) -> tuple[Chain, list[Bytes]]:
        used = self._chain(header)
        return used, [raw, *map(used.squeeze, pages)]

    def _lossy(self, header: Header, pages: Sequence[Bytes]) -> tuple[Chain, list[Bytes]] | None:
        """With a header of the pages as they will be read; None where too much would be lost, or nothing."""
        used = self.recipe.lossy_chain(header.layout)
        if used is None:
            return None
        try:
            coded = list(map(used.code, pages))
        except CodecError:
            return None
        worst = max(used.error(page, read) for page, (_, read) in zip(pages, coded, strict=True))
        self.measured(worst)
        if worst > self.recipe.most_error:
            return None
        checksums = b"".join(xxh3_128_digest(read) for _, read in coded)
        rewritten = memoryview(bytearray(header_size(header.pages)))
        encode_header(msgspec.structs.replace(header, checksums=checksums), rewritten)
        return used, [rewritten, *(stored for stored, _ in coded)]

    def _envelope(self, item: PutItem, used: Chain, page_bytes: int, sizes: Sequence[int]) -> Envelope:
        shape = used.names, page_bytes, len(item.buffers[0])
        if self.recipe.locksmith is None:
            return Envelope(*shape, pack_sizes(sizes))
        made = self.recipe.locksmith.data_key(item.key)
        return Envelope(
            *shape,
            pack_sizes([size + TAG_BYTES for size in sizes]),
            cipher=CIPHER,
            key_id=made.key_id,
            wrapped=made.wrapped,
            salt=os.urandom(SALT_BYTES),
        )

    def _chain(self, header: Header) -> Chain:
        found = self._chains.get(header.dtype)
        if found is None:
            found = self._chains[header.dtype] = self.recipe.chain(header.dtype)
        return found


@dataclass(frozen=True, slots=True)
class Reader:
    """Opens the sections of one coded blob, in any order and any thread."""

    key: str
    head: Head
    chain: Chain
    seal: Seal | None

    @classmethod
    def of(cls, key: str, head: Head, locksmith: Locksmith | None) -> Reader:
        """Raises CodecError for what this version cannot open, LockedError and OSError without its key."""
        envelope = head.envelope
        if envelope.cipher not in ("", CIPHER):
            raise CodecError(f"{envelope.cipher!r} is no cipher that this version knows")
        if envelope.cipher and locksmith is None:
            raise LockedError(f"sealed with the key {envelope.key_id!r}, and this tier has no keys")
        seal = locksmith.seal(key, envelope, head.meta) if locksmith and envelope.cipher else None
        return cls(key, head, chain(envelope.codecs), seal)

    def section(self, place: int, stored: Bytes) -> Bytes:
        """Section number `place` of the chunk blob: its header, or page `place` - 1.

        Raises DamagedError where the stored bytes are not what was written there.
        """
        plain = self.unsealed(place, stored)
        if place:
            try:
                return self.chain.restore(plain, self.head.envelope.page_bytes)
            except CodecError as error:
                raise DamagedError(str(error)) from error
        if len(plain) != self.head.envelope.header_bytes:
            raise DamagedError("the header has another size than its envelope says")
        return plain

    def unsealed(self, place: int, stored: Bytes) -> Bytes:
        """A section as it was before it was sealed; a page is still as its codecs made it.

        Raises DamagedError where the stored bytes are not what was written there.
        """
        checksum = self.head.checksums[place * CHECKSUM_BYTES : (place + 1) * CHECKSUM_BYTES]
        if xxh3_128_digest(stored) != checksum:
            raise DamagedError(f"the checksum of section {place} does not match")
        try:
            return stored if self.seal is None else self.seal.open(place, stored)
        except SealError as error:
            raise DamagedError(str(error)) from error


def _pages(header: Header, page_bytes: int, buffers: Sequence[Buffer]) -> list[Bytes]:
    """Each page of a blob in one piece. Raises HeaderError where there are more or fewer bytes."""
    if sum(map(len, buffers)) != header.pages * page_bytes:
        raise HeaderError(f"a header of {header.pages} pages before other bytes than theirs")
    pages: list[Bytes] = []
    left = list(buffers)
    for _ in range(header.pages):
        page = list(first(left, page_bytes))
        pages.append(page[0] if len(page) == 1 else b"".join(page))
        left = after(left, page_bytes)
    return pages
