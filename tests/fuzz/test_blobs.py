"""Bytes that claim to be a blob: refused, or exactly what was written."""

import os

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.chunk import header as format_
from sgkv.chunk.blob import put_item
from sgkv.reasons import MissReason
from tests.fuzz.targets import HASHES, IDENTITY, read_blob, read_header

BODY = [os.urandom(IDENTITY.layout.page_bytes) for _ in HASHES]


def whole_blob() -> bytes:
    item = put_item("key", IDENTITY, HASHES, [[memoryview(page)] for page in BODY], 0)
    item.prepare()
    return b"".join(item.buffers)


BLOB = whole_blob()
HEADER = format_.header_size(len(HASHES))

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
plausible = st.tuples(
    st.text(max_size=40) | st.just("0" * 32),
    st.sampled_from(["layer", "token", "head", "opaque", "", "LAYER"]),
    st.text(max_size=10) | st.just("float32"),
    st.integers(-1, 2**64 - 1),
    st.integers(-1, 2**64 - 1),
    st.integers(-1, 2**64 - 1),
    st.lists(st.integers(-1, 2**64 - 1), max_size=4),
    st.integers(0, 80).flatmap(lambda pages: st.binary(min_size=32 * pages, max_size=32 * pages)),
    st.integers(0, 80).flatmap(lambda pages: st.binary(min_size=16 * pages, max_size=16 * pages)),
    st.lists(st.text(max_size=8), max_size=3),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=20),
).map(list)


def sealed(fields: object, size: int = HEADER) -> bytes:
    """A header whose checksum is right whatever its fields are: a writer with a mistake, or an enemy."""
    meta = msgspec.msgpack.encode(fields)[: size - 36]
    raw = bytearray(size)
    raw[:20] = format_._PROLOGUE.pack(format_.MAGIC, 1, 0, size, len(meta))
    raw[36 : 36 + len(meta)] = meta
    raw[20:36] = format_._seal(memoryview(raw))
    return bytes(raw)


@settings(max_examples=400)
@given(values | plausible)
def test_any_fields_under_a_right_checksum(fields: object) -> None:
    raw = sealed(fields)
    read_header(raw)
    assert None not in read_blob(raw + b"".join(BODY)), "page hashes of a stranger were taken for ours"


@settings(max_examples=300)
@given(
    st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
)
def test_any_prologue(version: int, flags: int, size: int, meta_size: int) -> None:
    raw = bytearray(BLOB[:HEADER])
    raw[:20] = format_._PROLOGUE.pack(format_.MAGIC, version, flags, size, meta_size)
    raw[20:36] = format_._seal(memoryview(raw))
    accepted = read_header(bytes(raw))
    assert accepted is None or bytes(raw) == BLOB[:HEADER]


edits = st.lists(
    st.tuples(st.integers(0, len(BLOB) - 1), st.binary(min_size=1, max_size=64)), min_size=1, max_size=4
)


@settings(max_examples=300)
@given(edits, st.integers(0, len(BLOB)))
def test_any_damage_is_a_miss_of_what_it_touched(edits: list[tuple[int, bytes]], size: int) -> None:
    raw = bytearray(BLOB)
    for at, junk in edits:
        raw[at : at + len(junk)] = junk[: len(raw) - at]
    for outcome, page, place in _pages(bytes(raw[:size])):
        assert outcome is not None or bytes(place) == page


def _pages(raw: bytes) -> list[tuple[MissReason | None, bytes, bytes]]:
    step = IDENTITY.layout.page_bytes
    places = [raw[HEADER + at * step : HEADER + (at + 1) * step].ljust(step, b"\0") for at in range(4)]
    return list(zip(read_blob(raw), BODY, places, strict=True))


def test_the_whole_blob_is_read() -> None:
    assert read_blob(BLOB) == [None] * 4
