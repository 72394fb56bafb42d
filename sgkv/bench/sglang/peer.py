"""SGLang's own `file` backend, driven as its cache controller drives it.

Facts of SGLang 0.5.23, `managers/cache_controller.py`: the file backend is no zero-copy backend, so a
page is flattened (`get_data_page`), written, read into a page of zeros (`get_dummy_flat_data_page`)
and copied from there into the pool (`set_from_flat_data_page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sglang.srt.mem_cache.hicache_storage import HiCacheFile

from sgkv.bench.contest import Contender
from sgkv.bench.effort import BenchError
from sgkv.bench.scratch import empty_files
from sgkv.bench.sglang.adapter import storage_config
from sgkv.bench.sglang.pool import HostPages


class FileBackend(Contender):
    """A file a page, through flat copies."""

    def __init__(self, pages: HostPages, folder: Path) -> None:
        self._pool = pages.pool
        self._starts = pages.indices[:: pages.pool.page_size]
        self._folder = folder
        self._backend = HiCacheFile(storage_config({}), str(folder))
        self._backend.register_mem_pool_host(pages.pool)
        if Path(self._backend.file_path) != folder:
            raise BenchError(f"SGLang's file backend writes to {self._backend.file_path}, not to {folder}")

    def put(self, keys: Sequence[str]) -> None:
        pages = [self._pool.get_data_page(start) for start in self._starts[: len(keys)]]
        if not self._backend.batch_set(list(keys), pages):
            raise BenchError("SGLang's file backend did not store the pages: is the file system full?")

    def get(self, keys: Sequence[str]) -> None:
        blanks = [self._pool.get_dummy_flat_data_page() for _ in keys]
        pages = self._backend.batch_get(list(keys), blanks)
        for start, page in zip(self._starts, pages, strict=True):
            if page is None:
                raise BenchError("SGLang's file backend did not find a page it stored")
            self._pool.set_from_flat_data_page(start, page)

    def hits(self, keys: Sequence[str]) -> int:
        """Leading pages of a sequence that can be read."""
        return int(self._backend.batch_exists(list(keys)))

    def clear(self) -> None:
        empty_files(self._folder)
