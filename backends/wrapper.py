"""A backend over a backend, for what is wanted around any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgkv.backends.base import Backend, BackendStats, BlobInfo, Buffer, GetItem, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.keygroups import Watcher


class Wrapper(Backend):
    """Passes everything on; subclasses override what they are about, `probe` for `contains` too."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities

    def contains(self, keys: Sequence[str]) -> list[bool]:
        return self.probe(keys)[0]

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        return self.inner.probe(keys, deadline)

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        return self.inner.put(items, deadline)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        return self.inner.get(items, deadline)

    def delete(self, keys: Sequence[str]) -> list[bool]:
        return self.inner.delete(keys)

    def delete_prefix(self, prefix: str) -> bool:
        return self.inner.delete_prefix(prefix)

    def scan(self, prefix: str = "") -> Iterator[BlobInfo]:
        return self.inner.scan(prefix)

    def stats(self) -> BackendStats:
        return self.inner.stats()

    def close(self) -> None:
        self.inner.close()

    def register_memory(self, view: Buffer) -> bool:
        return self.inner.register_memory(view)

    def touch(self, keys: Sequence[str]) -> None:
        self.inner.touch(keys)

    def pin(self, keys: Sequence[str], pinned: bool = True) -> list[bool]:
        return self.inner.pin(keys, pinned)

    def watch(self, watcher: Watcher | None) -> list[str] | None:
        return self.inner.watch(watcher)

    def quarantine(self, keys: Sequence[str]) -> None:
        self.inner.quarantine(keys)
