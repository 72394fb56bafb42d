"""What a tier holds, by namespace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sgkv.backends.base import Backend, BlobInfo, GetItem, Part, Status
from sgkv.chunk.header import BLOCK, HeaderError, decode_header, stored_header_size
from sgkv.codecs.envelope import is_envelope
from sgkv.inspect.blob import describe_header
from sgkv.keys import BLOB_KEY


@dataclass(slots=True)
class Holding:
    """The blobs of one namespace."""

    namespace: str
    chunks: int = 0
    pages: int = 0
    """Blobs of single pages."""
    bytes: int = 0
    oldest: float = 0.0
    newest: float = 0.0
    """Unix seconds of the blobs' last change or use; 0 where the tier does not say."""
    sample: str = ""
    """Key of one of the newest blobs."""
    says: dict[str, Any] = field(default_factory=dict)
    """What that blob's header says; empty where it could not be read."""

    def add(self, blob: BlobInfo, kind: str) -> None:
        self.chunks += kind == "c"
        self.pages += kind == "p"
        self.bytes += blob.size
        self.oldest = min(self.oldest or blob.modified, blob.modified)
        if not self.sample or blob.modified > self.newest:
            self.newest, self.sample = blob.modified, blob.key


def holdings(
    tier: Backend, prefix: str = "", seen: Callable[[int], None] = lambda _blobs: None
) -> tuple[list[Holding], int]:
    """(what is there by namespace, largest first; blobs that are none of ours).

    `seen` is told of progress. Raises OSError where the tier cannot be listed to its end.
    """
    found: dict[str, Holding] = {}
    foreign = 0
    for count, blob in enumerate(tier.scan(prefix), 1):
        name = BLOB_KEY.fullmatch(blob.key)
        if name is None:
            foreign += 1
        else:
            found.setdefault(name[1], Holding(name[1])).add(blob, name[2])
        if not count % 1000:
            seen(count)
    for holding in found.values():
        holding.says = header_facts(tier, holding.sample)
    return sorted(found.values(), key=lambda holding: holding.bytes, reverse=True), foreign


def header_facts(tier: Backend, key: str) -> dict[str, Any]:
    """What a blob's header says; empty where it is gone or cannot be read."""
    start = _start(tier, key, BLOCK)
    if start is None:
        return {}
    if is_envelope(start):
        return {"coded": True}
    try:
        size = stored_header_size(start)
        whole = start if size == len(start) else _start(tier, key, size)
        return describe_header(decode_header(whole)) if whole is not None else {}
    except HeaderError:
        return {}


def expired(holding: Holding, now: float | None = None) -> bool:
    """Whether the sample has expired, and with it most likely the rest."""
    expires_at = holding.says.get("expires_at", 0)
    return bool(expires_at) and expires_at <= (time.time() if now is None else now)


def total(found: Iterable[Holding]) -> int:
    """Bytes of all."""
    return sum(holding.bytes for holding in found)


def _start(tier: Backend, key: str, size: int) -> memoryview | None:
    start = memoryview(bytearray(size))
    (status,) = tier.get([GetItem(key, [Part(0, start)])])
    return start if status is Status.OK else None
