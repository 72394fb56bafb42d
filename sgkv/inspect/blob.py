"""What one blob says of itself, and whether it is whole."""

from __future__ import annotations

from typing import Any

from sgkv.chunk.header import Header, HeaderError, decode_header, stored_header_size
from sgkv.chunk.whole import flaw
from sgkv.codecs.envelope import decode_head, is_envelope, stated_size
from sgkv.codecs.whole import flaw as flaw_of_envelope


def describe(raw: memoryview) -> dict[str, Any]:
    """Every fact of a blob, for people and for JSON; ``flaw`` is empty where all its checksums match.

    Of a coded blob what its envelope says; what is inside a sealed one only its tier's key opens.
    """
    try:
        if is_envelope(raw):
            return {"kind": "coded", "bytes": len(raw), **_envelope(raw), "flaw": flaw_of_envelope(raw)}
        header = decode_header(raw[: stored_header_size(raw)])
    except HeaderError as error:
        return {"kind": "unknown", "bytes": len(raw), "flaw": str(error)}
    return {"kind": "chunk", "bytes": len(raw), **describe_header(header), "flaw": flaw(raw)}


def describe_header(header: Header) -> dict[str, Any]:
    """The facts of a header."""
    return {
        "namespace": header.namespace,
        "pages": header.pages,
        "page_tokens": header.tokens,
        "page_bytes": header.layout.page_bytes,
        "dtype": header.dtype,
        "order": header.order,
        "layers": header.layers,
        "heads": header.heads,
        "rows": list(header.rows),
        "producer": header.producer,
        "created_at": header.created_at,
        "expires_at": header.expires_at,
        "first_hash": header.hash_of(0).hex(),
        "last_hash": header.hash_of(header.pages - 1).hex(),
    }


def _envelope(raw: memoryview) -> dict[str, Any]:
    envelope = decode_head(raw[: stated_size(raw)]).envelope
    return {
        "pages": len(envelope.section_sizes) - 1,
        "page_bytes": envelope.page_bytes,
        "stored_page_bytes": list(envelope.section_sizes[1:]),
        "codecs": list(envelope.codecs),
        "cipher": envelope.cipher,
        "key_id": envelope.key_id,
    }
