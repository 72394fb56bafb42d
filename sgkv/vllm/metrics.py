"""Our own counts beside vLLM's, which promise tokens before they are loaded.

They travel from the scheduler's process to the API server's ``/metrics`` in vLLM's statistics.
"""

from __future__ import annotations

from typing import Any

from sgkv.counters import Counters
from sgkv.vllm import compat

METRICS = {
    "hit_pages": ("vllm:sgkv_hit_pages", "tier", "Pages that sgkv loaded and verified"),
    "held_back_tokens": (
        "vllm:sgkv_held_back_tokens",
        "",
        "Tokens that were there and, by rollout, not loaded",
    ),
    "hit_tokens": ("vllm:sgkv_hit_tokens", "tier", "Tokens that sgkv served, so that they were not computed"),
    "miss_pages": ("vllm:sgkv_miss_pages", "reason", "Pages asked of sgkv and not served"),
    "lookup_chunks": ("vllm:sgkv_lookup_chunks", "result", "Offload chunks looked up in sgkv"),
    "lookup_pages": ("vllm:sgkv_lookup_pages", "result", "Pages that the connector looked up"),
    "lost_saves": ("vllm:sgkv_lost_saves", "", "Saves not done: blocks were reused, or too much waited"),
    "read_bytes": ("vllm:sgkv_read_bytes", "tier", "Bytes that sgkv loaded and verified"),
    "written_bytes": ("vllm:sgkv_written_bytes", "tier", "Bytes that became new blobs"),
    "failed_writes": ("vllm:sgkv_failed_writes", "tier", "Blobs that a tier of sgkv did not take"),
    "failed_loads": ("vllm:sgkv_failed_loads", "", "Chunks that were promised and could not be loaded"),
    "dropped_store_bytes": ("vllm:sgkv_dropped_store_bytes", "", "Bytes not stored: too much waited"),
    "internal_errors": ("vllm:sgkv_internal_errors", "", "Errors of sgkv's own that became misses"),
}
"""Counter of the store: (vLLM's name for it, label, what it says)."""


def definitions() -> dict[str, Any]:
    """For `SecondaryTierManager.build_metric_definitions`."""
    return {name: compat.counter(text, label) for name, label, text in METRICS.values()}


class Increments:
    """What was counted since the last time. One thread."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._told: dict[tuple[str, str], int] = {}

    def take(self) -> Any:
        """VLLM's statistics object, or None where nothing happened."""
        return compat.stats(self.new())

    def new(self) -> dict[tuple[str, str], int]:
        """Amounts by (vLLM's name of the metric, label value)."""
        new: dict[tuple[str, str], int] = {}
        for counted, total in self._counters.snapshot().items():
            if counted in METRICS:
                values = total if isinstance(total, dict) else {"": total}
                for value, amount in values.items():
                    key = (METRICS[counted][0], value)
                    if amount > self._told.get(key, 0):
                        new[key] = amount - self._told.get(key, 0)
                        self._told[key] = amount
        return new
