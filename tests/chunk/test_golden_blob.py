"""A blob as version 1 wrote it: later versions must read it, or refuse it by its version."""

from pathlib import Path

import pytest

from sgkv.backends.base import Status
from sgkv.backends.disk import DiskBackend
from sgkv.chunk.blob import BlobIdentity, BlobRead, put_item
from sgkv.chunk.convert import convert_page
from sgkv.chunk.layout import Order, PageLayout
from sgkv.keys import chunk_keys, hash_pages

GOLDEN = Path(__file__).with_name("golden_v1.blob")
LAYOUT = PageLayout(Order.TOKEN, "bfloat16", 4, 2, 2, (16, 8))
HASHES = hash_pages(range(8), 4)
PAGES = [bytes((page * 7 + byte) % 256 for byte in range(LAYOUT.page_bytes)) for page in range(2)]
CREATED, EXPIRES = 1_764_500_000, 4_102_444_800
IDENTITY = BlobIdentity("00112233445566778899aabbccddeeff", LAYOUT, "sglang/0.5.23", lambda: float(CREATED))


def written() -> bytes:
    item = put_item("key", IDENTITY, HASHES, [[memoryview(page)] for page in PAGES], EXPIRES)
    item.prepare()
    return b"".join(item.buffers)


def test_the_same_pages_make_the_same_bytes():
    assert written() == GOLDEN.read_bytes()


@pytest.mark.parametrize("order", [Order.TOKEN, Order.LAYER, Order.HEAD])
def test_it_is_read_in_every_order(tmp_path, order):
    (key,) = chunk_keys(IDENTITY.namespace, HASHES[-1:])
    place = tmp_path / "blobs" / key
    place.parent.mkdir(parents=True)
    place.write_bytes(GOLDEN.read_bytes())
    wanted = PageLayout(order, "bfloat16", 4, 2, 2, (16, 8))
    into = [[memoryview(bytearray(LAYOUT.page_bytes))] for _ in PAGES]
    read = BlobRead(key, BlobIdentity(IDENTITY.namespace, wanted, ""), 2, [0, 1], HASHES, into)
    disk = DiskBackend(tmp_path, 1 << 20, min_free_bytes=0)
    try:
        assert disk.get([read.item()]) == [Status.OK]
    finally:
        disk.close()
    assert read.outcomes == [None, None]
    assert [bytes(page[0]) for page in into] == [
        convert_page(memoryview(page), LAYOUT, wanted) if order is not Order.TOKEN else page for page in PAGES
    ]
