"""Putting and getting whole blobs, for tests that are about something else."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sgkv.backends.base import Backend, Buffer, GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline

NAMESPACE = "0123456789abcdef" * 2


def key_of(number: int, namespace: str = NAMESPACE) -> str:
    """A key as the store makes them."""
    name = f"{number:064x}"
    return f"{namespace}/c/{name[-2:]}/{name}"


def blob(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{seed}/{size}").randbytes(size)


def cut(data: bytes | bytearray, sizes: Sequence[int]) -> list[Buffer]:
    """Views of `data` of the given sizes, and one of the rest."""
    view, pieces = memoryview(data), []
    for size in sizes:
        pieces.append(view[:size])
        view = view[size:]
    return [*pieces, view]


def put_item(key: str, data: bytes) -> PutItem:
    return PutItem(key, [memoryview(data)])


def put(backend: Backend, key: str, data: bytes, deadline: Deadline | None = None) -> Status:
    return backend.put([put_item(key, data)], deadline)[0]


def get(backend: Backend, key: str, size: int, deadline: Deadline | None = None) -> bytes | Status:
    """The first `size` bytes, or why not."""
    into = bytearray(size)
    status = backend.get([GetItem(key, [Part(0, memoryview(into))])], deadline)[0]
    return bytes(into) if status is Status.OK else status


def fill(backend: Backend, count: int, size: int) -> list[str]:
    """Put `count` blobs of `size` bytes; their keys, in that order."""
    keys = [key_of(number) for number in range(count)]
    for number, key in enumerate(keys):
        assert put(backend, key, blob(size, number)) is Status.OK
    return keys
