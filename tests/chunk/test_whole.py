"""Whole blobs judged without a model: nothing is said of a good one, and what is wrong of any other."""

from pathlib import Path

import msgspec
import pytest

from sgkv.chunk.header import BLOCK, HeaderError, UnknownFormatError, encode_header
from sgkv.chunk.whole import flaw, flaw_of_pages, opened

GOLDEN = Path(__file__).with_name("golden_v1.blob").read_bytes()


def flipped(at: int) -> memoryview:
    raw = bytearray(GOLDEN)
    raw[at] ^= 1
    return memoryview(raw)


def test_a_good_one():
    assert flaw(memoryview(GOLDEN)) == ""
    header, pages = opened(memoryview(GOLDEN))
    assert len(pages) == header.pages * header.layout.page_bytes


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (memoryview(b""), "cannot hold a header"),
        (memoryview(bytes(BLOCK)), "magic"),
        (flipped(100), "header's checksum"),
        (flipped(BLOCK), "checksum of page 0"),
        (flipped(-1), "checksum of page"),
        (memoryview(GOLDEN)[:-1], "bytes that are here"),
        (memoryview(GOLDEN + b"\0"), "bytes that are here"),
        (memoryview(GOLDEN)[:BLOCK], "bytes that are here"),
    ],
    ids=["empty", "zeros", "header", "first page", "last page", "short", "long", "no pages"],
)
def test_what_is_wrong_is_said(blob: memoryview, said: str):
    assert said in flaw(blob)


def test_pages_behind_a_codec_are_of_another_version_and_not_damaged():
    header, pages = opened(memoryview(GOLDEN))
    raw = bytearray(GOLDEN)
    encode_header(msgspec.structs.replace(header, codecs=("zstd",)), memoryview(raw)[: len(raw) - len(pages)])
    with pytest.raises(UnknownFormatError, match="zstd"):
        opened(memoryview(raw))
    assert "zstd" in flaw(memoryview(raw))


def test_a_header_is_not_taken_for_what_follows_it():
    header, pages = opened(memoryview(GOLDEN))
    assert flaw_of_pages(header, pages[:-1])
    with pytest.raises(HeaderError):
        opened(pages)
