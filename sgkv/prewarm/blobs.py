"""Whether a blob is what its key says, without knowing any model: header, name and every checksum.

Of a coded blob only what is stored is verified: its name, key and expiry are for its tier to look at.
"""

from __future__ import annotations

from typing import NamedTuple

from sgkv.chunk.header import Header, HeaderError, UnknownFormatError
from sgkv.chunk.whole import flaw_of_pages, opened
from sgkv.codecs.envelope import is_envelope
from sgkv.codecs.whole import flaw
from sgkv.keys import BLOB_KEY, is_blob_key
from sgkv.prewarm.outcomes import Outcome


class BlobName(NamedTuple):
    """What a key says (docs/format.md)."""

    namespace: str
    kind: str
    """``c`` for a full chunk, ``p`` for a single page."""
    last_hash: str


class Examined(NamedTuple):
    """GOOD, EXPIRED, UNKNOWN_FORMAT, CORRUPT or FOREIGN."""

    outcome: Outcome
    header: Header | None = None
    """What the blob says of itself; there where the outcome is GOOD, unless it is coded."""


def parse_key(key: str) -> BlobName | None:
    """None for what is no key of a chunk or page blob, such as other people's objects."""
    found = BLOB_KEY.fullmatch(key)
    if found is None or not is_blob_key(key):
        return None
    return BlobName(found[1], found[2], found[4])


def examine(name: BlobName, raw: memoryview, now: float) -> Examined:
    """Judge the whole blob `raw`; `now` is Unix seconds."""
    try:
        if is_envelope(raw):
            return Examined(Outcome.CORRUPT if flaw(raw) else Outcome.GOOD)
        header, pages = opened(raw)
    except UnknownFormatError:
        return Examined(Outcome.UNKNOWN_FORMAT)
    except HeaderError:
        return Examined(Outcome.CORRUPT)
    if not _named(header, name):
        return Examined(Outcome.FOREIGN)
    if header.expired(now):
        return Examined(Outcome.EXPIRED, header)
    return Examined(Outcome.CORRUPT if flaw_of_pages(header, pages) else Outcome.GOOD, header)


def _named(header: Header, name: BlobName) -> bool:
    if name.kind == "p" and header.pages != 1:
        return False
    return (header.namespace, header.hash_of(header.pages - 1).hex()) == (name.namespace, name.last_hash)
