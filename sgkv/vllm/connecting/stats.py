"""The store's counts on their way through vLLM, from each worker to the server's ``/metrics``."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from sgkv.vllm.metrics import METRICS

Amounts = dict[str, dict[str, int]]
"""By vLLM's name of the metric and the value of its label, which may be empty."""


class SgkvStats(KVConnectorStats):
    """Increments since the last time; `data` is `Amounts`."""

    data: Amounts

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, amounts in other.data.items():
            mine = self.data.setdefault(name, {})
            for value, amount in amounts.items():
                mine[value] = mine.get(value, 0) + amount
        return self

    def reduce(self) -> dict[str, int | float]:
        """One line of the log: totals by name."""
        return {name.removeprefix("vllm:"): sum(amounts.values()) for name, amounts in self.data.items()}

    def is_empty(self) -> bool:
        return not self.data


class SgkvPromMetrics(KVConnectorPromMetrics):
    """Counters with vLLM's labels and one of ours."""

    def __init__(
        self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: metric_types[Counter](
                name=name, documentation=text, labelnames=[*labelnames, *([label] if label else [])]
            )
            for name, label, text in METRICS.values()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        for name, amounts in transfer_stats_data.items():
            for value, amount in amounts.items() if name in self._counters else ():
                self._counters[name].labels(*labels, *([value] if value else [])).inc(amount)


def as_stats(increments: dict[tuple[str, str], int]) -> SgkvStats | None:
    """Increments by (metric, label value); None for none."""
    data: Amounts = {}
    for (name, value), amount in increments.items():
        data.setdefault(name, {})[value] = amount
    return SgkvStats(data=data) if data else None
