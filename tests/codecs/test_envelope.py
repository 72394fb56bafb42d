"""The envelope's format, byte by byte, and everything that is none."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.backends.base import PutItem, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.chunk.header import BLOCK, HeaderError
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.envelope import (
    Envelope,
    decode_head,
    encode_head,
    encode_meta,
    head_size,
    pack_sizes,
    stated_size,
)
from sgkv.codecs.errors import CodecError
from sgkv.codecs.keys import HeldKeys
from sgkv.codecs.locksmith import Locksmith
from sgkv.codecs.sealing import Seal
from sgkv.codecs.squeezing import Planes, chain
from tests.codecs.conftest import Chunk, outcome

GOLDEN_FILE = Path(__file__).with_name("envelope-1.bin")
GOLDEN = Chunk(["0" * 63 + "1", "0" * 63 + "2"], [bytes(range(256)) * 16, b"\x3f\x80" * 2048])


def fields(**changes: object) -> Envelope:
    usual = {"codecs": ("zstd:1",), "page_bytes": 8, "header_bytes": 4096, "sizes": pack_sizes([3, 5])}
    return Envelope(**{**usual, **changes})  # type: ignore[arg-type]


def head(**changes: object) -> bytes:
    return encode_head(encode_meta(fields(**changes)), [b"abc", b"defgh"])


def test_a_golden_head() -> None:
    """Change this only with a new version of the envelope: docs/format.md."""
    assert sha256(head()).hexdigest() == "7fcd6293be9aa7af7d126e3bfe4a7c51a0bcdaf681b4b162ef23cd5ae4fd7804"
    assert head()[:20].hex() == "8953474b450d0a1a01000000001000001d000000"


def test_a_golden_seal() -> None:
    seal = Seal(bytes(range(32)), bytes(16), "namespace/c/00/hash", b"fields")
    assert seal.close(1, b"a page").hex() == "94c536524c2c3c41d4c8ee3363e891d5747ebe6717ee"
    assert seal.open(1, seal.close(1, b"a page")) == b"a page"


def test_golden_planes() -> None:
    assert bytes(Planes(2).squeeze(b"\x01\x02\x03\x04\x05")) == b"\x01\x03\x02\x04\x05"
    assert bytes(Planes(4).squeeze(bytes(range(9)))) == bytes([0, 4, 1, 5, 2, 6, 3, 7, 8])


def test_what_was_encoded_is_read() -> None:
    read = decode_head(memoryview(head()))
    assert read.envelope == fields()
    assert read.offsets == [4096, 4099, 4104]
    assert stated_size(memoryview(head())) == head_size(2) == BLOCK


@pytest.mark.parametrize("at", [0, 7, 8, 10, 12, 16, 20, 35, 36, 60, 100, BLOCK - 1])
def test_any_changed_byte_is_refused(at: int) -> None:
    bad = bytearray(head())
    bad[at] ^= 1
    with pytest.raises(HeaderError):
        decode_head(memoryview(bad))


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": b""},
        {"sizes": b"abc"},
        {"sizes": pack_sizes([0, 5])},
        {"sizes": pack_sizes([1] * 1000)},
        {"page_bytes": 0},
        {"header_bytes": -1},
        {"sizes": pack_sizes([4096 + 17, 5])},
        {"sizes": pack_sizes([3, 8 + 17])},
    ],
)
def test_fields_that_describe_nothing_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(HeaderError):
        decode_head(memoryview(head(**changes)))


@given(st.binary(max_size=200))
def test_no_bytes_are_an_envelope_by_chance(data: bytes) -> None:
    with pytest.raises(HeaderError):
        decode_head(memoryview(data))


@given(st.binary(min_size=1, max_size=3000), st.sampled_from(["planes:2", "planes:4", "planes:8"]))
def test_every_page_comes_back(page: bytes, planes: str) -> None:
    for names in ([planes], ["zstd:1"], [planes, "zstd:1"], ["lz4"], [planes, "lz4"]):
        codec = chain(names)
        assert bytes(codec.restore(codec.squeeze(page), len(page))) == page


@given(st.binary(max_size=500), st.sampled_from(["zstd:1", "lz4"]))
def test_bytes_that_no_codec_made_are_refused(data: bytes, name: str) -> None:
    codec = chain([name])
    try:
        assert len(codec.restore(data, 700)) == 700
    except CodecError:
        return


@pytest.mark.parametrize("name", ["gzip", "planes", "planes:3", "zstd:0", "zstd:x", "lz4:1", ""])
def test_a_codec_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(CodecError):
        chain([name])


def test_a_frame_that_claims_to_be_huge_gets_no_memory() -> None:
    """64 MiB of zeros in some bytes."""
    bomb = chain(["zstd:1"])._steps[0].squeeze(bytes(64 << 20))
    with pytest.raises(CodecError, match="another size"):
        chain(["zstd:1"]).restore(bomb, 4096)


def test_a_golden_blob_is_read() -> None:
    """A file as version 1 of the envelope wrote it: two pages, zstd, sealed with a key of zeros."""
    stored = GOLDEN_FILE.read_bytes()
    cpu = CpuBackend(8 << 20, prefault=False)
    cpu.put([PutItem(GOLDEN.key, [memoryview(stored)])])
    keys = HeldKeys("golden", {"golden": bytes(32)})
    assert outcome(CodedBackend(cpu, Recipe(locksmith=Locksmith(keys, "tenant"))), GOLDEN) is Status.OK
    assert outcome(CodedBackend(cpu), GOLDEN) is Status.LOCKED
