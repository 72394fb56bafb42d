"""sgkv as a KV connector of vLLM, with no tier in host memory: ``kv_connector: SgkvConnector`` with
``kv_connector_module_path: sgkv.vllm.connector``.

vLLM 0.32 and 0.33 build it twice, in the scheduler's process and in every worker's; what each method is
called for, and when, is described in `KVConnectorBase_V1`. After construction nothing here raises or
waits, but for `wait_for_layer_load`, which waits for memory copies. `sgkv vllm-args --connector` prints
the flag.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)

from sgkv.boundary import contained
from sgkv.config import load, resolve
from sgkv.counters import Counters
from sgkv.store.build import build_store
from sgkv.vllm.connecting.envelopes import Orders, Report
from sgkv.vllm.connecting.groups import page_tokens
from sgkv.vllm.connecting.pending import PendingSaves
from sgkv.vllm.connecting.planning import plan_of, questions_of, rank_of, served_groups
from sgkv.vllm.connecting.scheduling import Scheduling
from sgkv.vllm.connecting.stats import SgkvPromMetrics, SgkvStats, as_stats
from sgkv.vllm.connecting.working import Working
from sgkv.vllm.facts import read_facts
from sgkv.vllm.metrics import Increments
from sgkv.vllm.naming import model_identity

logger = logging.getLogger("sgkv")


class SgkvConnector(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's or a worker's side."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        """Raises ConfigError or ValueError, which say what to change: the one moment where failing is
        better than serving nothing.
        """
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        if transfer.kv_load_failure_policy != "recompute":
            raise ValueError(
                'sgkv\'s connector needs "kv_load_failure_policy": "recompute" in kv_transfer_config: '
                "with vLLM's default, a load that fails ends its request"
            )
        options = dict(transfer.kv_connector_extra_config)
        self._groups = served_groups(vllm_config, kv_cache_config)
        self._page_tokens = page_tokens(options, self._groups[0].shape.block_tokens)
        options.pop("page_tokens", None)
        self._resolved = resolve(load(options, origin="kv_connector_extra_config").config)
        self._counters = Counters()
        self._scheduling: Scheduling | None = None
        self._working: Working | None = None
        self._increments: Increments | None = None
        if role is KVConnectorRole.SCHEDULER:
            ranks = vllm_config.parallel_config.world_size
            plan = plan_of(transfer, self._resolved.config, self._groups, self._page_tokens)
            questions = questions_of(self._resolved.config, ranks)
            self._scheduling = Scheduling(plan, questions, PendingSaves(ranks))

    # Scheduler's side

    def on_new_request(self, request: Any) -> None:
        """Requests with images, embeddings or adapters are more than their token ids."""
        named = not request.mm_features and request.prompt_embeds is None and request.lora_request is None
        if named and self._scheduling is not None:
            self._scheduling.begin(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        with contained("a lookup", self._counters):
            return self._side.matched(request, num_computed_tokens)
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._side.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def get_external_cache_hit_sources(self, request: Any, num_external_tokens: int) -> Any:
        return self._side.sources(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Orders:
        return self._side.orders(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self._side.told(connector_output)

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Blocks are never kept for us: a save that they are needed for is lost."""
        announced: dict[str, Any] | None = None
        with contained("the end of a request", self._counters):
            announced = self._side.finished(request, block_ids)
        return False, announced

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def has_pending_push_work(self) -> bool:
        """Step once more for what a request's end left to store; workers need no steps to do it."""
        return self._scheduling is not None and self._scheduling.due

    def reset_cache(self) -> bool:
        """VLLM resets its caches: on request, for a sleep, or because its weights were changed."""
        self._side.reset()
        return True

    @property
    def requires_kv_delivery(self) -> bool:
        """A cache: what is not stored is computed."""
        return False

    # Worker's side

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Open the store. Raises like the constructor."""
        config, rank = self._resolved.config, rank_of(self._vllm_config)
        model = model_identity(config, read_facts(self._vllm_config, self._kv_cache_config))
        for warning in self._resolved.warnings:
            logger.warning("sgkv: %s", warning)
        store = build_store(self._resolved)
        self._increments = Increments(store.counters)
        self._working = Working(store, config, model, rank, self._groups, self._page_tokens, kv_caches)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """The first call of a step."""
        if self._working is not None:
            orders = kv_connector_metadata
            self._working.before(orders.revoked, orders.forgotten, reset=orders.reset)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._working is not None:
            orders: Any = self._get_connector_metadata()
            self._working.start(orders.lookups, orders.loads)

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._working is not None:
            self._working.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Whole pages are stored, of all layers, once the model has been given its work."""

    def wait_for_save(self) -> None:
        if self._working is not None:
            orders: Any = self._get_connector_metadata()
            self._working.after(orders.saves)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Whole requests and no blocks: blocks cannot be told for models with several groups."""
        ended = self._working.loaded() if self._working is not None else {}
        failed = {request for request, loaded in ended.items() if not loaded}
        return KVConnectorTransferResults(finished_recving=set(ended), failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Of layer-wise loads, which only models with one group have."""
        return self._working.lost_blocks() if self._working is not None else set()

    def build_connector_worker_meta(self) -> Report | None:
        if self._working is None:
            return None
        report = Report(self._working.answers(), self._working.ended())
        return report if report.answers or report.ended else None

    def get_kv_connector_stats(self) -> SgkvStats | None:
        return as_stats(self._increments.new()) if self._increments is not None else None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Layers are waited for in Python."""
        return True

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> SgkvStats:
        return SgkvStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> SgkvPromMetrics:
        return SgkvPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def flush(self, timeout: float) -> bool:
        """Worker's side, on request: wait until what was ordered so far is stored; False if time ran out."""
        return self._working is None or self._working.flush(timeout)

    def shutdown(self) -> None:
        if self._working is not None:
            self._working.close()

    @property
    def _side(self) -> Scheduling:
        assert self._scheduling is not None
        return self._scheduling
