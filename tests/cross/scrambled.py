"""A store whose KV nobody converted: keys in vLLM's CPU packing, under valid headers and checksums."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from sgkv.chunk.blob import BlobIdentity, put_item
from sgkv.chunk.header import decode_header, header_size
from tests.vllm.rig import blobs


def scramble(source: Path, target: Path) -> int:
    """Copy a disk tier's folder and rewrite its blobs; how many there were."""
    shutil.copytree(source, target)
    found = blobs(target)
    for path in found:
        path.write_bytes(_scrambled(path.read_bytes()))
    return len(found)


def _scrambled(blob: bytes) -> bytes:
    header = decode_header(memoryview(blob)[: header_size(1)])  # a few pages need no larger one
    layout = header.layout
    start = header_size(header.pages)
    ends = range(start + layout.page_bytes, len(blob) + 1, layout.page_bytes)
    cut = [blob[end - layout.page_bytes : end] for end in ends]
    hashes = [header.hashes[at : at + 32].hex() for at in range(0, len(header.hashes), 32)]
    identity = BlobIdentity(header.namespace, layout, header.producer)
    views = [[memoryview(_transposed(page, layout.plane_bytes[0]))] for page in cut]
    item = put_item("any", identity, hashes, views, header.expires_at)
    item.prepare()
    return b"".join(item.buffers)


def _transposed(page: bytes, plane: int) -> bytearray:
    """The K plane with its last two axes exchanged, as a CPU page of vLLM's has them."""
    keys = np.frombuffer(page[:plane], "u4").reshape(-1, 64)
    return bytearray(keys.T.tobytes() + page[plane:])
