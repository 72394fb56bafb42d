"""SGLang's HiCache storage backend: `--hicache-storage-backend sgkv`, or `dynamic` with this class.

What SGLang 0.5.23 calls, from which thread, and what it does with the answer is described at each
method. Two rules hold for all of them after construction: nothing is raised, and lists have the
length SGLang will index. Failures become misses in `guarded`, and only there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

from sgkv.backends.deadline import Deadline
from sgkv.chunk.blob import Page
from sgkv.chunk.layout import Order
from sgkv.config import ConfigError, load, resolve
from sgkv.metrics import process_metrics
from sgkv.reasons import MissReason
from sgkv.sglang import lifecycle
from sgkv.sglang.facts import read_facts
from sgkv.sglang.guarded import all_false, all_false_by_pool, all_none, guarded
from sgkv.sglang.naming import model_identity
from sgkv.sglang.pool import HostPool, flat_page
from sgkv.sglang.reporter import Reporter
from sgkv.sglang.shelves import HostShelves, Shelf
from sgkv.store.build import build_store
from sgkv.store.lookup import Found
from sgkv.store.pools import Need, PoolCover, restorable
from sgkv.store.span import Span

if TYPE_CHECKING:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

logger = logging.getLogger("sgkv")

HostShelf = Shelf[HostPool]

_KV = PoolName.KV.value
_UNALIGNED = (
    "sgkv: SGLang does not pass the hashes before a batch, so pages are stored one by one instead of in "
    '256-token chunks. Set "hicache_storage_pass_prefix_keys": true in the extra config (the sgkv flag '
    "does); decode offload in P/D never passes them."
)


class SgkvHiCache(HiCacheStorage):
    """Pages of SGLang's host pools over an embedded sgkv store.

    One instance a rank. SGLang calls it from its prefetch, prefetch-I/O, backup and scheduler threads.
    """

    def __init__(self, storage_config: HiCacheStorageConfig, _kwargs: dict[str, Any] | None = None) -> None:
        """`storage_config.extra_config` holds our keys beside SGLang's own.

        Raises ConfigError, with the path of each bad field, when the configuration cannot work: this
        is the one moment where failing is better than serving nothing.
        """
        resolved = resolve(load(storage_config.extra_config or {}, origin="the extra config").config)
        for warning in resolved.warnings:
            logger.warning("sgkv: %s", warning)
        config = resolved.config
        self._times = config.engine
        metrics = process_metrics() if storage_config.enable_storage_metrics else None
        self._reporter = Reporter(metrics) if metrics else None
        model = model_identity(config, read_facts())  # before the store, which starts threads
        self.store = build_store(resolved, metrics)
        self.shelves = HostShelves(self.store, config, storage_config, model)
        self._said: set[str] = set()
        lifecycle.register(self)

    # Registration: scheduler thread, before any traffic (dynamic sidecars: during it).

    @guarded("registering the host pool", lambda *_a, **_k: None, lets=(ConfigError,))
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The anchor pool. What cannot be served is said once and then missed.

        Raises ConfigError where the fleet's grid of cells does not fit this server: SGLang is still
        attaching us, and takes that back.
        """
        super().register_mem_pool_host(mem_pool_host)
        self.shelves.add(mem_pool_host, _KV)

    @guarded("registering a side pool", lambda *_a, **_k: None)
    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self.shelves.add(host_pool, str(host_pool_name))

    # Lookups: prefetch thread, and (P/D decode) the scheduler thread.

    @guarded("lookup", lambda *_a, **_k: 0)
    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        """How many leading pages can be read. SGLang cuts its prefetch there."""
        found = self._find(_KV, _span(keys, extra_info), Deadline(self._times.exists_deadline))
        self.store.counters.lookup(len(keys), found.pages, found.reason)
        return found.pages

    @guarded("lookup of several pools", lambda *_a, **_k: PoolTransferResult.empty())
    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """Which prefix lengths every pool of the model can serve.

        A trailing window may be whole at 5 pages and not at 4, and every rank holds its own shard:
        SGLang intersects `restorable_prefix_pages` over the ranks.
        """
        span = _span(keys, extra_info)
        logical = self.shelves.logical_anchor and bool(pool_transfers)  # then other pools have the bytes
        deadline = Deadline(self._times.exists_deadline)
        kv = Found(len(keys), None) if logical else self._find(_KV, span, deadline)
        hits = {_KV: kv.pages} if kv.pages else {}
        lengths = set(range(1, kv.pages + 1))
        for transfer in pool_transfers or []:
            if transfer.hit_policy is PoolHitPolicy.BLOCK_GROUPS:
                continue  # reports a verdict of its own, never gates the KV hit, and we have none to give
            can = restorable(self._cover(transfer, span, kv.pages, deadline))
            if can:
                hits[str(transfer.name)] = max(can)
            lengths &= can
        pages = max(lengths, default=0)
        reason = kv.reason if pages == kv.pages else MissReason.SIDE_POOL
        self.store.counters.lookup(len(keys), pages, reason)
        return PoolTransferResult(pages, hits, sorted(lengths))

    def _find(self, pool: str, span: Span, deadline: Deadline) -> Found:
        shelf = self.shelves.usable(pool)
        if isinstance(shelf, MissReason):
            return Found(0, shelf)
        return shelf.session.lookup(span, deadline)

    def _cover(self, transfer: PoolTransfer, span: Span, kv_pages: int, deadline: Deadline) -> PoolCover:
        shelf = self.shelves.usable(str(transfer.name))
        present = [False] * kv_pages
        if isinstance(shelf, Shelf):  # the whole span: the KV may end inside a chunk of this pool
            present = shelf.session.contains(span, deadline)[:kv_pages]
        trailing = transfer.hit_policy is PoolHitPolicy.TRAILING_PAGES
        window = max(1, len(transfer.keys or ()))
        return PoolCover(Need.TRAILING if trailing else Need.ALL, present, window)

    @guarded("lookup", lambda *_a, **_k: False)
    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    # Zero-copy transfers (v1): prefetch-I/O thread and backup thread, at most 128 pages a call.

    @guarded("reading pages", all_false, reads=True)
    def batch_get_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        """Fill the pages at `host_indices`; SGLang uses the leading run of True and verifies nothing."""
        return self._get(_KV, keys, host_indices, extra_info)

    @guarded("storing pages", all_false)
    def batch_set_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None
    ) -> list[bool]:
        """Store the pages at `host_indices`; any False makes SGLang drop the rest of that node."""
        return self._set(_KV, keys, host_indices, extra_info)

    # Side pools (v2): same threads; sets come before the KV of the same operation, gets after it.

    @guarded("reading side pools", all_false_by_pool, reads=True)
    def batch_get_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        return {t.name: self._get(str(t.name), t.keys or [], t.host_indices, extra_info) for t in transfers}

    @guarded("storing side pools", all_false_by_pool)
    def batch_set_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        return {t.name: self._set(str(t.name), t.keys or [], t.host_indices, extra_info) for t in transfers}

    # The generic path: flat copies of pages, without "interface_v1".

    @guarded("reading flat pages", all_none, reads=True)
    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Fill `target_locations`, one flat CPU tensor a page; None for each miss."""
        hits = self._fill(_KV, keys, self._flat_pages(target_locations), None)
        return [target_locations[page] if hit else None for page, hit in enumerate(hits)]

    @guarded("storing flat pages", lambda *_a, **_k: False)
    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Store `values`, one contiguous flat CPU tensor a page; all or nothing is SGLang's contract."""
        return all(self._keep(_KV, keys, self._flat_pages(values), None))

    @guarded("reading a flat page", lambda *_a, **_k: None)
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        return self.batch_get([key], [target_location])[0]

    @guarded("storing a flat page", lambda *_a, **_k: False)
    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    # Control: scheduler thread.

    @guarded("clear", lambda *_a, **_k: None)
    def clear(self) -> None:
        """Forget what this model stored, in every tier; other models and tenants keep theirs."""
        self.shelves.clear()

    @guarded("statistics", lambda *_a, **_k: None)
    def get_stats(self) -> Any:
        """SGLang's StorageMetrics since the last call; called about 2,000 times a second."""
        if self._reporter is None:
            return None
        self._reporter.refresh_gauges(self.store)
        return self._reporter.drain()

    @guarded("close", lambda *_a, **_k: None)
    def close(self) -> None:
        """Drain and close; bounded well below the 10 s after which SGLang refuses to detach."""
        lifecycle.unregister(self)
        self.store.close()

    def _get(
        self, pool: str, keys: list[str], indices: torch.Tensor | None, info: HiCacheStorageExtraInfo | None
    ) -> list[bool]:
        if pool == _KV and self.shelves.logical_anchor:
            return [True] * len(keys)
        return self._fill(pool, keys, self._pages(pool, keys, indices), info)

    def _set(
        self, pool: str, keys: list[str], indices: torch.Tensor | None, info: HiCacheStorageExtraInfo | None
    ) -> list[bool]:
        if pool == _KV and self.shelves.logical_anchor:
            return [True] * len(keys)
        return self._keep(pool, keys, self._pages(pool, keys, indices), info)

    def _pages(self, pool: str, keys: list[str], indices: torch.Tensor | None) -> list[Page]:
        """The pages at `indices`; none when they do not belong to exactly these keys."""
        shelf = self.shelves.usable(pool)
        if isinstance(shelf, MissReason) or indices is None:
            return []
        return shelf.pool.pages(indices) if indices.numel() == len(keys) * shelf.pool.page_size else []

    def _flat_pages(self, tensors: Any) -> list[Page]:
        """`tensors` as pages; none for a pool that we know by its runs alone, whose order in a flat
        page may be another than in zero-copy transfers.
        """
        shelf = self.shelves.usable(_KV)
        if isinstance(shelf, Shelf) and shelf.session.layout.order is Order.OPAQUE:
            self._say_once(
                logging.WARNING,
                'sgkv: pool kv (%s) can only be stored by zero-copy transfers. Set "interface_v1": 1 in the '
                "extra config; the sgkv flag does.",
                shelf.pool.kind,
            )
            return []
        return [flat_page(tensor) for tensor in tensors or []]

    def _fill(
        self, pool: str, keys: list[str], pages: Sequence[Page], info: HiCacheStorageExtraInfo | None
    ) -> list[bool]:
        shelf = self._matching(pool, keys, pages)
        if isinstance(shelf, MissReason):
            self.store.counters.misses([shelf] * len(keys))
            return [False] * len(keys)
        with Reporter.timed(self._reporter, "prefetch", shelf.session.layout.page_bytes) as done:
            reasons = shelf.session.get(_span(keys, info), pages, Deadline(self._times.get_deadline))
            done.pages = reasons.count(None)
        return [reason is None for reason in reasons]

    def _keep(
        self, pool: str, keys: list[str], pages: Sequence[Page], info: HiCacheStorageExtraInfo | None
    ) -> list[bool]:
        shelf = self._matching(pool, keys, pages)
        if isinstance(shelf, MissReason):
            return [False] * len(keys)
        span = _span(keys, info)
        if span.before is None and shelf.session.pages_per_chunk > 1:
            self._say_once(logging.INFO, _UNALIGNED)
        with Reporter.timed(self._reporter, "backup", shelf.session.layout.page_bytes) as done:
            stored = shelf.session.set(span, pages, Deadline(self._times.set_deadline))
            done.pages = sum(stored)
        return stored

    def _matching(self, pool: str, keys: list[str], pages: Sequence[Page]) -> HostShelf | MissReason:
        """The pool's shelf, if there is one page a key and each has exactly the bytes of a page."""
        shelf = self.shelves.usable(pool)
        if isinstance(shelf, MissReason):
            return shelf
        size = shelf.session.layout.page_bytes
        fits = len(pages) == len(keys) and all(sum(map(len, page)) == size for page in pages)
        return shelf if fits else MissReason.UNSUPPORTED

    def _say_once(self, level: int, message: str, *args: object) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.log(level, message, *args)


def _span(keys: Sequence[str], info: HiCacheStorageExtraInfo | None) -> Span:
    """Where `keys` lie in the sequence.

    SGLang passes None both when it passes no prefix keys at all and, on reads only, when there are
    none before the pages it looked up; of those it may since have dropped some at the head.
    """
    return Span(keys, info.prefix_keys if info is not None else None)
