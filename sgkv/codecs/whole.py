"""Whether bytes are a whole coded blob, without its key: its head, and every section as it is stored."""

from __future__ import annotations

from itertools import pairwise

from xxhash import xxh3_128_digest

from sgkv.chunk.header import HeaderError
from sgkv.codecs.envelope import CHECKSUM_BYTES, decode_head, stated_size


def flaw(blob: memoryview) -> str:
    """What is wrong with an envelope; empty when nothing is. What is inside only its tier can tell.

    Raises UnknownFormatError for one of another version.
    """
    size = stated_size(blob)
    try:
        head = decode_head(blob[:size])
    except HeaderError as error:
        return str(error)
    offsets = head.offsets
    if len(blob) != offsets[-1]:
        return f"{len(blob)} bytes are here, and the head tells of {offsets[-1]}"
    for place, (start, stop) in enumerate(pairwise(offsets)):
        wanted = head.checksums[place * CHECKSUM_BYTES : (place + 1) * CHECKSUM_BYTES]
        if xxh3_128_digest(blob[start:stop]) != wanted:
            return f"the checksum of section {place} does not match"
    return ""
