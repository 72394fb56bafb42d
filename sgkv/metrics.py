"""What the store does, as Prometheus metrics under the prefix ``sgkv_``.

`Metrics` is fed in three ways: `observe` is the observer of a metered backend, `count` the sink of
`sgkv.counters.Counters`, `update` takes a store's snapshot. prometheus_client is imported when the
first `Metrics` is made, not before: it decides at import whether it writes to the files under
``PROMETHEUS_MULTIPROC_DIR``, and SGLang sets that variable only once its server has begun to start. With
it, the metrics of every rank appear at SGLang's own ``/metrics``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter

    from sgkv.backends.base import BackendStats, Bound
    from sgkv.store.base import StoreStats

_BUCKETS = (1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2, 2.5e-2, 0.1, 0.25, 1.0, 2.5, 10.0)
"""Seconds: from a lookup in memory to the longest deadline."""

HELP = {
    "broken_connections": "Connections that the node's daemon ended because of what was said on them",
    "dropped_store_bytes": "Bytes that vLLM offered and that were not stored, because too much waited",
    "engine_events_missed": "Events of an engine's cache that were lost or not understood",
    "event_batches_dropped": "Batches of KV events that were not published, because too many waited",
    "failed_loads": "Chunks or pages that were promised to vLLM and could not be loaded",
    "failed_writes": "Blobs that a tier did not take",
    "gate_judged_pages": "Pages that were read, by what the gate had said and whether it was right",
    "gate_pages": "Pages that were found, by whether loading them was worth it",
    "held_back_tokens": "Tokens that were there and not loaded, because the rollout holds them back",
    "hit_pages": "Pages served",
    "hit_tokens": "Tokens that were not computed, because their pages were served",
    "internal_errors": "Errors of sgkv's own that became misses",
    "lookup_chunks": "Chunks that vLLM's offload looked up, by whether they were there",
    "lookup_pages": "Pages looked up, by whether they could be read then, and else why",
    "lookups": "Prompts looked up, by how much of what was asked about could be read then",
    "lost_saves": "Stores of vLLM's connector that were not done",
    "miss_pages": "Pages asked for and not served",
    "node_fenced": "Daemons ended because they kept silent about pages they had been lent",
    "node_lost": "Times that the node's daemon went away",
    "node_silences": "Calls that the node's daemon did not answer in time",
    "offload_present_pages": "Pages that SGLang's linker offered and the store had already",
    "offload_stalled_pages": "Pages not taken from SGLang's linker because the window was full",
    "offload_wasted_pages": "Pages copied from the device that the store then did not keep",
    "over_quota_pages": "Pages that the node's daemon did not take, for a quota",
    "promoted_pages": "Pages copied into the cpu tier after a read from a slower one",
    "promotions_dropped": "Pages not promoted because the queue was full",
    "read_bytes": "Bytes of pages served",
    "rollout_pauses": "Times that loading paused because reads failed or were late",
    "tier_events": "What happened in a tier, by name",
    "read_ahead_left_out_pages": "Pages that SGLang's linker found no memory for to read them ahead",
    "refused_connections": "Engines that the node's daemon did not let in",
    "refused_loads": "Loads of SGLang's linker that could not be made ready, so that the prompt was computed",
    "write_behind_dropped_pages": "Pages not written to the slower tiers: the queue or the cpu tier was full",
    "written_bytes": "Bytes that became new blobs",
}


class Metrics:
    """The metrics of the stores of one process. Any thread."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register in `registry`; without one they can be fed and read, and are exported nowhere."""
        from prometheus_client import Counter, Gauge, Histogram

        self._registry = registry
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._totals: dict[tuple[str, str], int] = {}
        self._items = Counter(
            "sgkv_tier_items", "Blobs handled, by outcome", ("tier", "op", "status"), registry=registry
        )
        self._bytes = Counter("sgkv_tier_bytes", "Bytes moved", ("tier", "op"), registry=registry)
        self._seconds = Histogram(
            "sgkv_tier_seconds", "Duration of a batch", ("tier", "op"), buckets=_BUCKETS, registry=registry
        )
        gauges = {
            name: Gauge(f"sgkv_{name}", text, labels, registry=registry, multiprocess_mode="liveall")
            for name, text, labels in _GAUGES
        }
        self._tier_gauges = {fact: gauges[f"tier_{fact}"] for fact in _TIER_FACTS}
        self._queue_bytes = gauges["write_behind_bytes"]
        self._queue_items = gauges["write_behind_items"]
        self._bound_used, self._bound_limit = gauges["bound_used"], gauges["bound_limit"]
        self._states = gauges["tier_state"]

    def observe(self, op: str, tier: str, seconds: float, statuses: Mapping[str, int], nbytes: int) -> None:
        """One batched call of a tier: how long it took, its items by status, the bytes it moved."""
        self._seconds.labels(tier, op).observe(seconds)
        for status, items in statuses.items():
            self._items.labels(tier, op, status).inc(items)
        if nbytes:
            self._bytes.labels(tier, op).inc(nbytes)

    def count(self, name: str, labels: Mapping[str, str], amount: int) -> None:
        """Add to the counter ``sgkv_{name}_total``, which has the same label names in every call."""
        counter = self._counters.get(name) or self._new_counter(name, tuple(labels))
        (counter.labels(**labels) if labels else counter).inc(amount)

    def update(self, stats: StoreStats) -> None:
        """Set the gauges to a snapshot of a store."""
        self._queue_bytes.set(stats.write_behind_bytes)
        self._queue_items.set(stats.write_behind_queued)
        for tier, facts in stats.tiers.items():
            for fact, gauge in self._tier_gauges.items():
                gauge.labels(tier).set(getattr(facts, fact))
            self._count_events(tier, facts)
            self._set_bounds(tier, facts.bounds)
            for name, state in facts.states.items():
                self._states.labels(tier, name).set(state)
        self._set_bounds("", stats.bounds)

    def _set_bounds(self, tier: str, bounds: Mapping[str, Bound]) -> None:
        for name, bound in bounds.items():
            self._bound_used.labels(tier, name).set(bound.used)
            self._bound_limit.labels(tier, name).set(bound.limit)

    def _count_events(self, tier: str, facts: BackendStats) -> None:
        for name in ("evicted_blobs", "evicted_bytes"):
            self.count(f"tier_{name}", {"tier": tier}, self._added(tier, name, getattr(facts, name)))
        for name, total in facts.counters.items():
            self.count("tier_events", {"tier": tier, "event": name}, self._added(tier, name, total))

    def _added(self, tier: str, name: str, total: int) -> int:
        """Since the last snapshot: a backend reports totals, and starts again when it is opened anew."""
        with self._lock:
            before = self._totals.get((tier, name), 0)
            self._totals[tier, name] = total
        return total - before if total >= before else total

    def _new_counter(self, name: str, labels: tuple[str, ...]) -> Counter:
        from prometheus_client import Counter

        with self._lock:
            if name not in self._counters:
                text = HELP.get(name, name.replace("_", " ").capitalize())
                self._counters[name] = Counter(f"sgkv_{name}", text, labels, registry=self._registry)
            return self._counters[name]


_TIER_FACTS = ("blobs", "used_bytes", "capacity_bytes", "pinned_bytes")
_GAUGES = (
    ("tier_blobs", "Blobs in a tier", ("tier",)),
    ("tier_used_bytes", "Bytes that a tier holds", ("tier",)),
    ("tier_capacity_bytes", "Bytes that a tier may hold; 0 is no limit", ("tier",)),
    ("tier_pinned_bytes", "Bytes that eviction leaves alone", ("tier",)),
    ("write_behind_bytes", "Bytes on their way to the slower tiers", ()),
    ("write_behind_items", "Chunks and tails on their way to the slower tiers", ()),
    ("tier_state", "State of a part of a tier, such as its breakers: 0 is well", ("tier", "part")),
    ("bound_used", "Threads, queued tasks and the like in use", ("tier", "resource")),
    ("bound_limit", "How many of them there may be", ("tier", "resource")),
)


@lru_cache(maxsize=1)
def process_metrics() -> Metrics:
    """The metrics in prometheus_client's default registry: one set a process, however many stores."""
    from prometheus_client import REGISTRY

    return Metrics(REGISTRY)
