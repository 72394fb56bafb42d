"""Judging blobs without knowing any model: whatever the bytes are, there is one verdict, and it is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.prewarm.blobs import BlobName, examine, parse_key
from sgkv.prewarm.outcomes import BAD, Outcome
from tests.prewarm.blobs import NAMESPACE, SIZE, chunk, key_of

CORPUS = sorted((Path(__file__).parents[1] / "fuzz" / "corpus" / "headers").iterdir())
NOW = 1_800_000_000
UNUSABLE = BAD | {Outcome.UNKNOWN_FORMAT}


def written(number: int, **options: object) -> bytearray:
    item = chunk(number, **options)
    item.prepare()
    return bytearray(b"".join(item.buffers))


NAME, WHOLE = parse_key(key_of(1)), written(1)


def verdict(raw: bytes | bytearray, name: BlobName = NAME) -> Outcome:
    return examine(name, memoryview(raw), NOW).outcome


def test_a_blob_as_it_was_written():
    assert verdict(WHOLE) is Outcome.GOOD
    assert len(WHOLE) == SIZE


@given(st.integers(0, SIZE - 1), st.integers(0, 7))
@settings(max_examples=300)
def test_any_flipped_bit(byte, bit):
    raw = bytearray(WHOLE)
    raw[byte] ^= 1 << bit
    assert verdict(raw) in UNUSABLE


@given(st.integers(0, SIZE - 1), st.binary(max_size=10))
def test_any_other_length(size, more):
    assert verdict(WHOLE[:size]) in UNUSABLE
    assert verdict(WHOLE) is Outcome.GOOD
    if more:
        assert verdict(WHOLE + more) in UNUSABLE


@given(st.binary(max_size=9000))
def test_any_bytes(raw):
    assert verdict(raw) in UNUSABLE


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_headers_that_were_trouble_once(path):
    assert verdict(path.read_bytes()) in UNUSABLE
    assert verdict(path.read_bytes() + bytes(8192)) in UNUSABLE


def test_another_blob_under_this_key_is_foreign():
    assert verdict(written(2)) is Outcome.FOREIGN
    assert verdict(WHOLE, NAME._replace(namespace="0" * 32)) is Outcome.FOREIGN
    assert verdict(WHOLE, NAME._replace(kind="p")) is Outcome.FOREIGN


def test_expiry():
    assert verdict(written(1, expires_at=NOW)) is Outcome.EXPIRED
    assert verdict(written(1, expires_at=NOW + 1)) is Outcome.GOOD


@pytest.mark.parametrize(
    "key",
    [
        "",
        "README",
        f"{NAMESPACE}/c/00/{'0' * 63}",
        f"{NAMESPACE}/c/01/{'0' * 64}",
        f"{NAMESPACE}/x/00/{'0' * 64}",
        f"{NAMESPACE.upper()}/c/00/{'0' * 64}",
        f"{NAMESPACE}.layer/p/00/{'0' * 64}",
        f"{NAMESPACE}/c/00/{'0' * 64}\n",
        f"../{NAMESPACE}/c/00/{'0' * 64}",
    ],
)
def test_what_is_no_key(key):
    assert parse_key(key) is None
