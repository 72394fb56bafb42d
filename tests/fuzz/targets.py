"""What is fuzzed: bytes in, and either an answer or the one error that callers expect."""

import json
from collections.abc import Callable
from pathlib import Path

from sgkv.chunk.blob import BlobIdentity, BlobRead
from sgkv.chunk.header import Header, HeaderError, decode_header
from sgkv.chunk.layout import Order, PageLayout
from sgkv.config import ConfigError, Loaded, load, resolve
from sgkv.reasons import MissReason

IDENTITY = BlobIdentity("0" * 32, PageLayout(Order.LAYER, "float32", 16, 2, 2, (64, 32)), "fuzz")
HASHES = [f"{page:02x}" * 32 for page in range(4)]
REFUSALS = {MissReason.CORRUPT, MissReason.FOREIGN, MissReason.LAYOUT, MissReason.EXPIRED}


def read_header(raw: bytes) -> Header | None:
    """None for what is refused. What is accepted describes a page."""
    try:
        header = decode_header(memoryview(raw))
    except HeaderError:
        return None
    assert header.layout.page_bytes > 0
    assert len(header.checksums) == 16 * header.pages > 0
    return header


def read_blob(raw: bytes) -> list[MissReason | None]:
    """As the store reads four pages of a blob of which it knows nothing but the name."""
    pages = [[memoryview(bytearray(IDENTITY.layout.page_bytes))] for _ in HASHES]
    read = BlobRead("key", IDENTITY, len(HASHES), range(4), HASHES, pages)
    item = read.item()
    for offset, buffer in item.parts:
        piece = raw[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
    good = read.check()
    assert good == (read.outcomes == [None] * 4)
    assert set(read.outcomes) <= REFUSALS | {None}
    return read.outcomes


def read_config_file(path: Path) -> Loaded | None:
    """None for what is refused, and then every problem can be shown."""
    return _checked(lambda: load(file=path, environ={}))


def read_extra_config(options: dict[str, object]) -> Loaded | None:
    return _checked(lambda: load(options, environ={}, origin="the extra config"))


def read_environment(environ: dict[str, str]) -> Loaded | None:
    return _checked(lambda: load(environ=environ))


def _checked(read: Callable[[], Loaded]) -> Loaded | None:
    try:
        loaded = read()
        json.dumps(loaded.config.model_dump(mode="json"))
        resolve(loaded.config)
    except ConfigError as error:
        refusal = error
    else:
        return loaded
    assert refusal.problems
    assert str(refusal)
    return None
