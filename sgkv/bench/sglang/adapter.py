"""sgkv behind SGLang's storage interface, called as SGLang calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, HiCacheStorageExtraInfo

from sgkv.bench.contest import Contender
from sgkv.bench.effort import BenchError
from sgkv.bench.scratch import empty_files
from sgkv.bench.sglang.pool import HostPages
from sgkv.sglang.hicache import SgkvHiCache

_PATIENCE = 120.0
"""Deadline of everything, in seconds: it is in force, but a busy machine does not meet it."""
_PREFAULT_SECONDS = 60.0


class Adapter(Contender):
    """`SgkvHiCache` over one tier, through its zero-copy calls."""

    def __init__(
        self,
        pages: HostPages,
        *,
        capacity: int = 0,
        folder: Path | None = None,
        tier: Mapping[str, object] | None = None,
        head_group: int | None = None,
    ) -> None:
        """Over `tier` as a configuration has it, a disk tier in `folder`, or `capacity` bytes of memory.

        In cells of `head_group` kv heads, where that is given.
        """
        self._pages = pages
        self._folder = folder
        if tier is None:
            disk = {"type": "disk", "path": str(folder), "capacity": "90%"}
            tier = disk if folder is not None else {"type": "cpu", "capacity": capacity}
        self.backend = SgkvHiCache(storage_config(_configuration(tier, head_group)))
        self.backend.register_mem_pool_host(pages.pool)
        arena = self.backend.store.tiers[0].arena
        if arena is not None and not arena.wait_prefaulted(_PREFAULT_SECONDS):
            raise BenchError("the cpu tier did not become resident: is there too little memory?")

    def put(self, keys: Sequence[str], before: Sequence[str] = ()) -> None:
        """Store pages that follow those of `before`."""
        info = HiCacheStorageExtraInfo(prefix_keys=list(before))
        indices = self._pages.indices[: len(keys) * self._pages.pool.page_size]
        _require_all(self.backend.batch_set_v1(list(keys), indices, info), "batch_set_v1")

    def get(self, keys: Sequence[str]) -> None:
        info = HiCacheStorageExtraInfo(prefix_keys=[])
        _require_all(self.backend.batch_get_v1(list(keys), self._pages.indices, info), "batch_get_v1")

    def hits(self, keys: Sequence[str]) -> int:
        """Leading pages of a sequence that can be read."""
        return self.backend.batch_exists(list(keys), HiCacheStorageExtraInfo(prefix_keys=[]))

    def clear(self) -> None:
        """Not `SgkvHiCache.clear`, which leaves the work of unlinking to a thread."""
        if self._folder is not None:
            empty_files(self._folder)
        else:
            arena = self.backend.store.tiers[0].backend
            arena.delete([blob.key for blob in arena.scan()])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.backend.close()


def storage_config(extra: dict[str, object]) -> Any:
    """What SGLang hands a backend on the only rank of a page-first server."""
    return HiCacheStorageConfig(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name="bench",
        extra_config=extra,
    )


def _configuration(tier: Mapping[str, object], head_group: int | None) -> dict[str, object]:
    deadlines = {"contains": _PATIENCE, "get": _PATIENCE, "put": _PATIENCE}
    calls = {"exists_deadline": _PATIENCE, "get_deadline": _PATIENCE, "set_deadline": _PATIENCE}
    return {
        "model": {"weights": "bench", "head_group": head_group},
        "tiers": [{**tier, "deadlines": deadlines}],
        "engine": calls,
    }


def _require_all(done: Sequence[bool], call: str) -> None:
    if not all(done):
        raise BenchError(f"{call} did {sum(done)} of {len(done)} pages: is the file system full?")
