"""Blobs whose bytes follow from their number, so that any process can tell right ones from wrong ones."""

from __future__ import annotations

import random
from functools import lru_cache

from sgkv.backends.base import Backend, Buffer, GetItem, Part, PutItem, Status

PER_FOLDER = 8
"""Blobs of one namespace."""
FOLDERS = 3
"""Namespaces of one process."""
PER_PROCESS = FOLDERS * PER_FOLDER
_MANY_BUFFERS = 1500
"""More than one system call takes, so that a write can be cut in the middle."""


def prefix_of(number: int) -> str:
    return f"{number // PER_FOLDER:032x}/"


def key_of(number: int) -> str:
    return f"{prefix_of(number)}c/{number % 4:02x}/{number:064x}"


@lru_cache(maxsize=1024)
def content(number: int) -> bytes:
    source = random.Random(number)
    return source.randbytes(source.randrange(1, 16_000))


def put(backend: Backend, number: int) -> Status:
    data = memoryview(content(number))
    step = max(1, len(data) // _MANY_BUFFERS) if number % 3 == 0 else len(data)
    buffers: list[Buffer] = [data[at : at + step] for at in range(0, len(data), step)]
    return backend.put([PutItem(key_of(number), buffers)])[0]


def get(backend: Backend, number: int) -> bytes | Status:
    into = bytearray(len(content(number)))
    (status,) = backend.get([GetItem(key_of(number), [Part(0, memoryview(into))])])
    return bytes(into) if status is Status.OK else status
