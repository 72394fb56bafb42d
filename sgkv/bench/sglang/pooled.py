"""A Mooncake pool behind SGLang's storage interface: sgkv's backend, and SGLang's own."""

from __future__ import annotations

from collections.abc import Sequence

from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

from sgkv.backends.mooncake import MooncakeOptions
from sgkv.bench.contest import Contender
from sgkv.bench.effort import BenchError
from sgkv.bench.sglang.adapter import Adapter, storage_config
from sgkv.bench.sglang.pool import HostPages


class PoolAdapter(Adapter):
    """`SgkvHiCache` over a mooncake tier alone: straight from SGLang's host pool, and into it."""

    def __init__(self, pages: HostPages, options: MooncakeOptions) -> None:
        super().__init__(pages, tier={"type": "mooncake", "master": options.master, "admin": options.admin})

    def clear(self) -> None:
        pool = self.backend.store.tiers[0].backend
        pool.delete([blob.key for blob in pool.scan()])


class InTree(Contender):
    """SGLang's `mooncake` backend, through the calls of its cache controller."""

    def __init__(self, pages: HostPages, options: MooncakeOptions) -> None:
        extra = {
            "master_server_address": options.master,
            "local_hostname": options.hostname,
            "metadata_server": options.metadata,
            "global_segment_size": 0,
            "protocol": options.protocol,
        }
        self._indices = pages.indices
        self._page_tokens = pages.pool.page_size
        self._backend = MooncakeStore(storage_config(extra))
        self._backend.register_mem_pool_host(pages.pool)

    def put(self, keys: Sequence[str]) -> None:
        _require_all(self._backend.batch_set_v1(list(keys), self._indices), "batch_set_v1")

    def get(self, keys: Sequence[str]) -> None:
        _require_all(self._backend.batch_get_v1(list(keys), self._indices), "batch_get_v1")

    def clear(self) -> None:
        """By force, of all there is: its own `clear` leaves what was read within the lease."""
        self._backend.store.remove_all(True)

    def close(self) -> None:
        self._backend.store.close()


def _require_all(done: Sequence[bool], call: str) -> None:
    if not all(done):
        raise BenchError(f"SGLang's mooncake backend: {call} did {sum(done)} of {len(done)} pages")
