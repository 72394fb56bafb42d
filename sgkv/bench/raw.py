"""The plainest code that moves the same bytes: what a storage layer is measured against."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import memmove
from itertools import chain
from pathlib import Path

from sgkv.backends.cpu import CpuBackend, Lease
from sgkv.bench.contest import Contender, Payload
from sgkv.bench.effort import BenchError
from sgkv.bench.memory import address_of
from sgkv.bench.scratch import empty_files


class Memcpy(Contender):
    """One `memmove` a buffer, to and from the very blocks where a cpu backend put the same pages.

    Not memory of its own: how fast a processor copies depends on where source and destination lie
    relative to each other, by a factor of two between equally good places.
    """

    def __init__(self, payload: Payload, arena: CpuBackend) -> None:
        self._pages = payload.pages
        self._arena = arena
        self._moves: list[tuple[int, int, int]] = []
        self._leases: list[Lease] = []

    def prepare(self, keys: Sequence[str]) -> None:
        """Find the blocks; the backend's own put comes before, in the same group."""
        stored = {blob.key.rpartition("/")[2]: blob.key for blob in self._arena.scan()}
        leases = self._arena.lease([stored[key] for key in keys])
        self._leases = [lease for lease in leases if lease is not None]
        self._moves = []
        for lease, page in zip(self._leases, self._pages, strict=True):
            at = address_of(lease.view)
            for buffer in page:
                self._moves.append((at, address_of(buffer), len(buffer)))
                at += len(buffer)

    def put(self, keys: Sequence[str]) -> None:
        for ours, theirs, size in self._moves:
            memmove(ours, theirs, size)

    def get(self, keys: Sequence[str]) -> None:
        for ours, theirs, size in self._moves:
            memmove(theirs, ours, size)

    def clear(self) -> None:
        for lease in self._leases:
            lease.release()
        self._leases = []


class Files(Contender):
    """A new file for every `pages_a_file` pages: one `pwritev`, one `preadv`."""

    def __init__(self, payload: Payload, folder: Path, pages_a_file: int) -> None:
        self._folder = folder
        self._groups = [
            list(chain.from_iterable(payload.pages[start : start + pages_a_file]))
            for start in range(0, len(payload.pages), pages_a_file)
        ]
        self._sizes = [sum(map(len, group)) for group in self._groups]

    def put(self, keys: Sequence[str]) -> None:
        for key, group, size in zip(keys, self._groups, self._sizes, strict=False):
            fd = os.open(f"{self._folder}/{key}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            written = os.pwritev(fd, group, 0)
            os.close(fd)
            if written != size:
                raise BenchError(f"pwritev wrote {written} of {size} bytes: is the file system full?")

    def get(self, keys: Sequence[str]) -> None:
        for key, group, size in zip(keys, self._groups, self._sizes, strict=False):
            fd = os.open(f"{self._folder}/{key}", os.O_RDONLY)
            filled = os.preadv(fd, group, 0)
            os.close(fd)
            if filled != size:
                raise BenchError(f"preadv read {filled} of {size} bytes")

    def clear(self) -> None:
        empty_files(self._folder)
