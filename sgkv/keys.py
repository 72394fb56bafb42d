"""Page hashes and blob keys: how tokens become names.

A page hash is SGLang's: a SHA-256 chain over token ids, one digest a page, so that any digest names
the whole prefix that ends there. (`sglang/srt/mem_cache/utils.py` and `cpp_utils/hash_binding.cpp`
of 0.5.23; golden vectors in the tests, which also compare with the installed SGLang.) Python's own
`hash()` never takes part: it differs from process to process.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

_U32, _U64 = "I", "Q"
_U32_BYTES = array(_U32).itemsize
_NARROW = 0xFFFF_FFFF
_WIDE_MARK = b"\xff"
_NAMESPACE_TAG = b"sglang-cache-namespace-v1"

BLOB_KEY = re.compile(r"([0-9a-f]{32})/([cp])/([0-9a-f]{2})/([0-9a-f]{64})")
"""Namespace, kind, shard and hash of what `chunk_keys` and `page_keys` make for tiers below memory."""


def hash_pages(token_ids: Sequence[int], page_tokens: int, prior: str | None = None) -> list[str]:
    """Hash every full page of `token_ids`: 64 hex digits a page, chained from `prior`.

    `token_ids` are non-negative; a last partial page is ignored. `prior` is the hash of the page before
    the first token, or a namespace seed, or None at the start of a sequence. Little-endian machines
    only, like the engines' own hash.
    """
    if page_tokens < 1:
        raise ValueError(f"page_tokens is {page_tokens}: a page holds at least one token")
    full = len(token_ids) - len(token_ids) % page_tokens
    tokens = token_ids if full == len(token_ids) else token_ids[:full]
    pages: Iterable[bytes | memoryview]
    try:
        pages = _chunked(_narrow(tokens), page_tokens)
    except OverflowError:
        pages = map(_page_bytes, _chunked(array(_U64, tokens), page_tokens))
    last = bytes.fromhex(prior) if prior else b""
    hashes = []
    for page in pages:
        digest = sha256(last)
        digest.update(page)
        last = digest.digest()
        hashes.append(last.hex())
    return hashes


def _narrow(tokens: Sequence[int]) -> array[int]:
    """Token ids as u32. Raises OverflowError where one does not fit."""
    if not isinstance(tokens, array) or tokens.itemsize != 2 * _U32_BYTES:
        return array(_U32, tokens)
    import numpy as np  # only here: SGLang's array("q") brings numpy with it

    wide = np.frombuffer(tokens, np.uint64)
    if wide.max(initial=0) > _NARROW:
        raise OverflowError("a token id is wider than 32 bits")
    return array(_U32, wide.astype(np.uint32).tobytes())


def _chunked(tokens: array[int], page_tokens: int) -> Iterator[memoryview]:
    view = memoryview(tokens)
    return (view[start : start + page_tokens] for start in range(0, len(view), page_tokens))


def _page_bytes(page: memoryview) -> bytes:
    """A page of wide tokens: as u32 where all fit, else marked and as u64."""
    ids = page.tolist()
    if max(ids) <= _NARROW:
        return array(_U32, ids).tobytes()
    return _WIDE_MARK + page.tobytes()


def namespace_seed(extra_key: str | None, cache_salt: str | None) -> str | None:
    """The `prior` of a sequence's first page when an adapter key or a salt sets it apart.

    None when neither is given. Part of the hash chain itself, so that no later stage can forget it.
    """
    if extra_key is None and cache_salt is None:
        return None
    return sha256(_NAMESPACE_TAG + _part(extra_key) + _part(cache_salt)).hexdigest()


def _part(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    text = value.encode()
    return b"\x01" + struct.pack("<Q", len(text)) + text


def chunk_keys(namespace: str, last_hashes: Sequence[str]) -> list[str]:
    """Blob keys of full chunks, each named by the hash of its last page."""
    return [f"{namespace}/c/{h[:2]}/{h}" for h in last_hashes]


def page_keys(namespace: str, hashes: Sequence[str]) -> list[str]:
    """Blob keys of single pages: those outside a full chunk, and all pages of the cpu tier."""
    return [f"{namespace}/p/{h[:2]}/{h}" for h in hashes]


def is_blob_key(key: str) -> bool:
    """Whether a blob of ours could be called so; other people's objects are not."""
    found = BLOB_KEY.fullmatch(key)
    return found is not None and found[3] == found[4][:2]


def packed_hashes(hashes: Sequence[str]) -> bytes:
    """Hashes as raw bytes, 32 a page, as chunk headers keep them."""
    return bytes.fromhex("".join(hashes))
