"""The chunk header: golden bytes, round trips, and refusal of everything else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgkv.chunk.header import (
    Header,
    HeaderError,
    UnknownFormatError,
    blob_size,
    decode_header,
    encode_header,
    header_size,
    stored_header_size,
)

HASHES = b"".join(bytes([i]) * 32 for i in range(4))
SUMS = b"".join(bytes([200 + i]) * 16 for i in range(4))
HEADER = Header(
    "0" * 32, "layer", "bfloat16", 64, 2, 2, (64, 64), HASHES, SUMS, (), 0, 1_700_000_000, "sglang/0.5.23"
)

text = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=32)
headers = st.integers(1, 256).flatmap(
    lambda pages: st.builds(
        Header,
        namespace=st.from_regex("[0-9a-f]{32}", fullmatch=True),
        order=st.sampled_from(["layer", "token", "head", "opaque"]),
        dtype=text,
        tokens=st.integers(1, 256),
        layers=st.integers(1, 200),
        heads=st.integers(1, 200),
        rows=st.lists(st.integers(1, 2**20), min_size=1, max_size=4).map(tuple),
        hashes=st.binary(min_size=32 * pages, max_size=32 * pages),
        checksums=st.binary(min_size=16 * pages, max_size=16 * pages),
        expires_at=st.integers(0, 2**40),
        created_at=st.integers(0, 2**40),
        producer=text,
    )
)


def encoded(header: Header) -> memoryview:
    raw = memoryview(bytearray(header_size(header.pages)))
    encode_header(header, raw)
    return raw


@given(headers)
def test_round_trip(header):
    assert decode_header(encoded(header)) == header


def test_golden_bytes():
    raw = encoded(HEADER)
    assert len(raw) == 4096
    assert raw[:20].hex() == "8953474b560d0a1a010000000010000011010000"
    assert raw[20:36].hex() == "bb411dd0399d9e2ace1fad4284f2e41a"


def test_any_flipped_bit_is_refused():
    raw = encoded(HEADER)
    for byte in range(len(raw)):
        raw[byte] ^= 1 << (byte % 8)
        with pytest.raises(HeaderError):
            decode_header(raw)
        raw[byte] ^= 1 << (byte % 8)
    assert decode_header(raw) == HEADER


def test_every_truncation_and_extension_is_refused():
    raw = encoded(HEADER)
    for size in [*range(64), *range(64, 4096, 61), 4095]:
        with pytest.raises(HeaderError):
            decode_header(raw[:size])
    with pytest.raises(HeaderError):
        decode_header(memoryview(bytes(raw) + bytes(4096)))


@given(st.binary(max_size=5000))
def test_foreign_bytes_are_refused(raw):
    with pytest.raises(HeaderError):
        decode_header(memoryview(raw))


@given(headers, st.binary(min_size=1, max_size=200), st.integers(0, 4000))
@settings(max_examples=50)
def test_overwritten_stretches_are_refused(header, junk, offset):
    raw = encoded(header)
    before = bytes(raw)
    raw[offset : offset + len(junk)] = junk[: len(raw) - offset]
    if bytes(raw) != before:
        with pytest.raises(HeaderError):
            decode_header(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": (0,)},
        {"rows": ()},
        {"layers": 0},
        {"order": "sideways"},
        {"checksums": SUMS[:-1]},
        {"hashes": HASHES[:-1]},
    ],
)
def test_fields_that_describe_no_chunk_are_refused(change):
    import msgspec

    bad = msgspec.structs.replace(HEADER, **change)
    raw = memoryview(bytearray(4096))
    encode_header(bad, raw)
    with pytest.raises(HeaderError):
        decode_header(raw)


def test_what_does_not_fit_is_said():
    with pytest.raises(HeaderError, match="producer"):
        encoded(
            Header("0" * 32, "layer", "f", 1, 1, 1, (1,), bytes(32 * 74), bytes(16 * 74), producer="x" * 600)
        )


def test_another_version_is_told_from_damage():
    raw = encoded(HEADER)
    raw[8] += 1
    with pytest.raises(UnknownFormatError):
        decode_header(raw)
    raw[8] -= 1
    raw[20] ^= 1
    with pytest.raises(HeaderError) as caught:
        decode_header(raw)
    assert not isinstance(caught.value, UnknownFormatError)


def test_the_first_bytes_of_a_blob_say_how_long_its_header_is():
    raw = encoded(HEADER)
    assert stored_header_size(memoryview(bytes(raw[:36]))) == len(raw)
    with pytest.raises(HeaderError):
        stored_header_size(raw[:35])


def test_sizes():
    assert [header_size(n) for n in (1, 4, 74, 75, 256)] == [4096, 4096, 4096, 8192, 16384]
    assert blob_size(4, 1000) == 8096


def test_expiry():
    import msgspec

    assert not HEADER.expired(2e9)
    assert msgspec.structs.replace(HEADER, expires_at=100).expired(100.0)
    assert not msgspec.structs.replace(HEADER, expires_at=100).expired(99.9)
