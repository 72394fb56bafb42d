"""SGLang's external cache linker: device pools to the store and back, with no host pool between.

``--enable-unified-cache-external-linker --unified-cache-external-linker-backend dynamic`` with this
class; `sgkv sglang-args --linker` prints the flags. What SGLang 0.5.23 calls, and what it does with the
answer, is described at each method; all are called on the scheduler thread, in the same order on every
rank. Only the constructor raises.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter, UnifiedCacheLinker

from sgkv.backends.base import Bound
from sgkv.backends.deadline import Deadline
from sgkv.boundary import contained
from sgkv.config import load, resolve
from sgkv.metrics import process_metrics
from sgkv.reasons import MissReason
from sgkv.sglang import lifecycle
from sgkv.sglang.facts import read_facts
from sgkv.sglang.linking.loads import Loading, Preparation, Prepared
from sgkv.sglang.linking.offloads import Offer, Offloading
from sgkv.sglang.linking.pools import MAMBA, LinkedPool, UnservedPoolError, linked_pools
from sgkv.sglang.linking.positions import Positions
from sgkv.sglang.linking.rank import Agreement, rank_of
from sgkv.sglang.linking.requests import Requests
from sgkv.sglang.linking.transfers import LinkedShelves, PageMove, moves
from sgkv.sglang.linking.waiting import Waiting
from sgkv.sglang.naming import model_identity, replicated
from sgkv.sglang.reporter import Reporter
from sgkv.store.build import build_store
from sgkv.transfer.ahead import ReadAhead
from sgkv.transfer.memory import PageMemory
from sgkv.transfer.staging import Ring
from sgkv.transfer.window import OffloadWindow

logger = logging.getLogger("sgkv")


class SgkvLinker(UnifiedCacheLinker, Waiting):
    """One instance a rank."""

    def __init__(
        self,
        server_args: Any,
        params: Any,
        *,
        components: Any = None,
        extra_config: Mapping[str, object] | None = None,
        forward_stream: Any = None,
    ) -> None:
        """`extra_config` is a store's configuration; `params` are SGLang's CacheInitParams.

        Raises ConfigError or UnservedPoolError, saying what to change, when the linker cannot work.
        """
        resolved = resolve(load(extra_config or {}, origin="the linker's extra config").config)
        for warning in resolved.warnings:
            logger.warning("sgkv: %s", warning)
        config = resolved.config
        self.forward_stream = forward_stream
        self.positions = Positions()
        self._times = config.engine
        model = model_identity(config, read_facts())  # before the store, which starts threads
        linked = linked_pools(params, model.kv_cache_dtype)
        self.pools = {PoolName(pool.name): pool for pool in linked}
        self._rank = rank_of(params, linked)
        if self._rank.dcp_size > 1:
            raise UnservedPoolError("sgkv's linker does not serve decode context parallelism")
        self._agreement = Agreement(params)
        metrics = process_metrics() if params.enable_metrics else None
        self._reporter = Reporter(metrics) if metrics else None
        self.store = build_store(resolved, metrics)
        self.shelves = LinkedShelves(self.store, config, self._rank, model)
        for pool in linked:
            self.shelves.place(pool)
            self.shelves.say_unseen(pool)
        self.layer_done_counter = LayerWiseLoadCounter(1 + max(max(pool.layers) for pool in linked))
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        if params.mtp_draft_device_pools or params.sidecar_draft_device_pools:
            logger.warning(
                "sgkv: the draft model's KV is not stored: it guesses worse after a restored prefix"
            )
        self._open_lanes(linked, config.linker, config.chunk_tokens)
        lifecycle.register(self)

    def _open_lanes(self, linked: Sequence[LinkedPool], settings: Any, chunk_tokens: int) -> None:
        """The staging memory, and the threads that use it."""
        device = linked[0].pages.device
        chunk = max(_chunk_bytes(pool, chunk_tokens) for pool in linked)
        fetching = Ring(device, chunk * settings.staging_chunks)
        saving = Ring(device, chunk)
        for buffer in (*fetching.buffers, *saving.buffers):
            self.store.register_memory(buffer.view)
        times = self._times
        self._ahead = ReadAhead(PageMemory(settings.read_ahead), self.store.counters)
        self._requests = Requests(
            self.shelves, self._ahead, self.store.counters,
            exists_deadline=times.exists_deadline, get_deadline=times.get_deadline,
        )  # fmt: skip
        self._preparation = Preparation(fetching, self._ahead)
        self._loading = Loading(
            self.layer_done_counter, Ring(device, chunk), self.store.counters,
            layer_wise=settings.layer_wise, timeout=times.get_deadline,
        )  # fmt: skip
        page = linked[0].page_size
        tokens = settings.offload_window or linked[0].pages.slots // 4
        self._offloading = Offloading(
            saving, OffloadWindow(max(1, tokens // page), self.store.counters), self.store.counters,
            exists_deadline=times.exists_deadline, set_deadline=times.set_deadline,
        )  # fmt: skip

    def lookup(self, rid: str, transfers: list[PoolTransfer]) -> list[int]:
        """Every prefix length in pages that this rank can restore, of the part that the device lacks.

        Called while a request is scheduled, again each time it is considered: it looks into indices,
        and asks a remote tier for as long as `engine.exists_deadline`. What a load would have to read
        from a slow tier is begun to be read.
        """
        before = self.positions.take()
        with contained("lookup", self.store.counters):
            return list(self._requests.look_up(rid, transfers, before))
        return []

    def not_yet(self, rid: str) -> bool:
        """Called before a load: whether SGLang should look the request up again in its next step.

        True while pages are read for it, and when some could not be: the next lookup answers less.
        """
        if self._rank.pp_size > 1:  # stages decide alone, and each has to decide alike
            return False
        unsettled = False
        with contained("waiting", self.store.counters):
            unsettled = self._requests.unsettled(rid)
        return not self._agreement.on(not unsettled)

    def forget(self, rid: str) -> None:
        """Called when a request is aborted."""
        self._requests.forget(rid)

    def load(self, rid: str, transfers: list[PoolTransfer]) -> bool:
        """Make a request's pages ready to be copied into the slots that SGLang gave it.

        False makes it compute them, a failure after True would cost its client an error. So whatever can
        fail is done here, within `engine.get_deadline`, and all ranks answer alike.
        """
        prepared: Prepared | MissReason = MissReason.INTERNAL
        with contained("load", self.store.counters):
            wanted = moves(transfers, self._requests.before(rid), self.shelves)
            prepared = wanted if isinstance(wanted, MissReason) else self._prepare(rid, wanted)
        self._requests.forget(rid)
        ready = isinstance(prepared, Prepared)
        agreed = self._agreement.on(ready)
        if isinstance(prepared, Prepared) and agreed:
            self._loading.queue(rid, prepared)
        elif isinstance(prepared, Prepared):
            prepared.release()
        if not agreed:
            self.store.counters.add("refused_loads")
        return agreed

    def start_layer_wise_loading(self) -> int:
        """Called before every forward; -1 where nothing was queued for it."""
        return self._loading.start(self.record_offload_ready() if self._loading.waiting else ())

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        """Called after the forward: whether every layer had arrived. False aborts its requests."""
        return bool(self.layer_done_counter.finish(counter_index))

    def cancel_queued_load(self, rid: str) -> bool:
        return self._loading.cancel(rid)

    def offload(self, transfers: list[PoolTransfer], session_id: str | None = None) -> bool:
        """Queue the pages of one node. SGLang keeps them until the result is popped, if this is True."""
        before = self.positions.take()
        offer: Offer | None = None
        with contained("offload", self.store.counters):
            offer = self._offer(transfers, before)
        fits = offer is not None and self._offloading.window.has_room(offer.pages)
        if offer is not None and not fits:
            self._offloading.window.stall(offer.pages)
        if not self._agreement.on(fits) or offer is None:
            return False
        self._offloading.queue(offer)
        return True

    def num_completed_offloads(self) -> int:
        """Called about once a step."""
        if self._reporter is not None:
            with contained("statistics", self.store.counters):
                self._reporter.refresh_gauges(self.store, self.bounds)
        return self._offloading.finished()

    def pop_completed_offload(self) -> bool:
        return self._offloading.pop()

    def bounds(self) -> dict[str, Bound]:
        """What the linker itself holds, and may hold."""
        return {"read_ahead_bytes": self._ahead.held, "offload_window_pages": self._offloading.window.held}

    def reset(self) -> None:
        """SGLang has dropped all its pages: nothing is read from or written to them after this."""
        self._loading.reset()
        self._offloading.reset()
        self._requests.reset()
        self.layer_done_counter.reset()

    def close(self) -> None:
        """Drain and close; takes as long as one batch of a slow tier, and the store's own drain."""
        lifecycle.unregister(self)
        self._loading.close()
        self._offloading.close()
        self._ahead.close(self._times.get_deadline)
        self.layer_done_counter.reset()
        self.store.close()

    def _prepare(self, rid: str, wanted: Sequence[PageMove]) -> Prepared | MissReason:
        deadline = Deadline(self._times.get_deadline)
        return self._preparation.prepare(rid, wanted, self.record_offload_ready(), deadline)

    def _offer(self, transfers: list[PoolTransfer], before: Sequence[str] | None) -> Offer | None:
        """What this rank has to store of a node; None while nothing may be stored."""
        found = moves(transfers, before, self.shelves)
        if isinstance(found, MissReason) or not found:
            return None
        own = [move for move in found if self._rank.tp_rank == 0 or not replicated(self._rank, move.pool)]
        pages = sum(len(move.span.hashes) for move in found if move.pool.name != MAMBA)
        return Offer(own, self.record_offload_ready(), pages, lambda: self._current(own))

    def _current(self, own: Sequence[PageMove]) -> bool:
        """Whether no update of the weights has begun since."""
        shelves = [self.shelves.usable(move.pool.name) for move in own]
        return all(
            not isinstance(shelf, MissReason) and shelf.session is move.session
            for shelf, move in zip(shelves, own, strict=True)
        )


def _chunk_bytes(pool: LinkedPool, chunk_tokens: int) -> int:
    return pool.pages.page_bytes * max(1, chunk_tokens // pool.page_size if pool.name != MAMBA else 1)
