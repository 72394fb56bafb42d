"""What a Prometheus server would read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sgkv.backends.base import BackendStats, Bound
from sgkv.counters import Counters
from sgkv.metrics import HELP, Metrics, process_metrics
from sgkv.reasons import MissReason
from sgkv.store.store import StoreStats


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry)


def stats(*, evicted: int = 0, used: int = 700) -> StoreStats:
    cpu = BackendStats(
        blobs=7,
        used_bytes=used,
        capacity_bytes=1000,
        evicted_blobs=evicted,
        evicted_bytes=10 * evicted,
        bounds={"copy_threads": Bound(1, 4)},
    )
    bounds = {"promotion_pages": Bound(30, 4096)}
    return StoreStats({"cpu": cpu}, {}, write_behind_bytes=50, write_behind_queued=2, bounds=bounds)


def test_a_batch_counts_items_bytes_and_time(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.observe("get", "disk", 0.02, {"ok": 3, "absent": 1}, 4096)
    metrics.observe("get", "disk", 0.2, {"ok": 1}, 4096)
    labels = {"tier": "disk", "op": "get"}
    assert registry.get_sample_value("sgkv_tier_items_total", labels | {"status": "ok"}) == 4
    assert registry.get_sample_value("sgkv_tier_items_total", labels | {"status": "absent"}) == 1
    assert registry.get_sample_value("sgkv_tier_bytes_total", labels) == 8192
    assert registry.get_sample_value("sgkv_tier_seconds_count", labels) == 2
    assert registry.get_sample_value("sgkv_tier_seconds_bucket", labels | {"le": "0.025"}) == 1


def test_the_stores_counters_become_counters(metrics: Metrics, registry: CollectorRegistry) -> None:
    counters = Counters(metrics.count)
    counters.misses([MissReason.CORRUPT, None, MissReason.CORRUPT, MissReason.ABSENT])
    counters.hits("cpu", 5, 100, 16)
    counters.add("internal_errors")
    assert registry.get_sample_value("sgkv_miss_pages_total", {"reason": "corrupt"}) == 2
    assert registry.get_sample_value("sgkv_hit_pages_total", {"tier": "cpu"}) == 5
    assert registry.get_sample_value("sgkv_read_bytes_total", {"tier": "cpu"}) == 500
    assert registry.get_sample_value("sgkv_hit_tokens_total", {"tier": "cpu"}) == 80
    assert registry.get_sample_value("sgkv_internal_errors_total") == 1


def test_a_snapshot_sets_the_gauges(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.update(stats())
    metrics.update(stats(used=300))
    assert registry.get_sample_value("sgkv_tier_used_bytes", {"tier": "cpu"}) == 300
    assert registry.get_sample_value("sgkv_tier_capacity_bytes", {"tier": "cpu"}) == 1000
    assert registry.get_sample_value("sgkv_write_behind_bytes") == 50
    assert registry.get_sample_value("sgkv_write_behind_items") == 2
    threads = {"tier": "cpu", "resource": "copy_threads"}
    assert registry.get_sample_value("sgkv_bound_used", threads) == 1
    assert registry.get_sample_value("sgkv_bound_limit", threads) == 4
    assert registry.get_sample_value("sgkv_bound_used", {"tier": "", "resource": "promotion_pages"}) == 30


def test_what_a_tier_counts_and_how_its_breakers_stand(metrics: Metrics, registry: CollectorRegistry) -> None:
    def seen(refused: int, state: int) -> tuple[float | None, float | None]:
        facts = BackendStats(counters={"guard_refused": refused}, states={"read_breaker": state})
        metrics.update(StoreStats({"disk": facts}, {}, 0, 0, {}))
        return (
            registry.get_sample_value("sgkv_tier_events_total", {"tier": "disk", "event": "guard_refused"}),
            registry.get_sample_value("sgkv_tier_state", {"tier": "disk", "part": "read_breaker"}),
        )

    assert seen(0, 0) == (0, 0), "shown before anything happened, so that a rate can be told"
    assert seen(5, 2) == (5, 2)
    assert seen(7, 0) == (7, 0)
    assert seen(1, 0) == (8, 0), "a tier that was opened anew counts from 0"


def test_evictions_are_counted_once_however_often_the_store_is_asked(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    for evicted in (3, 3, 8):
        metrics.update(stats(evicted=evicted))
    assert registry.get_sample_value("sgkv_tier_evicted_blobs_total", {"tier": "cpu"}) == 8
    assert registry.get_sample_value("sgkv_tier_evicted_bytes_total", {"tier": "cpu"}) == 80


def test_every_name_has_our_prefix_and_a_help_text(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.observe("put", "cpu", 0.001, {"ok": 1}, 1)
    metrics.count("hit_pages", {"tier": "cpu"}, 1)
    metrics.update(stats(evicted=1))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert len(families) >= 10
    assert [family.name for family in families if not family.name.startswith("sgkv_")] == []
    assert [family.name for family in families if not family.documentation] == []


def test_everything_that_is_counted_has_a_help_text() -> None:
    """Counters appear when they first count, so that no exposition shows all: this reads the source."""
    sources = (Path(__file__).parents[2] / "sgkv").rglob("*.py")
    counted = {
        name for source in sources for name in re.findall(r'ounters\.add\(\s*"([a-z_]+)"', source.read_text())
    }
    assert "gate_pages" in counted
    assert counted <= set(HELP)
    told = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert [name for name in sorted(HELP) if f"`sgkv_{name}_total`" not in told] == []


def test_without_a_registry_any_number_of_them_can_be_fed() -> None:
    for metrics in (Metrics(), Metrics()):
        metrics.observe("get", "cpu", 0.001, {"ok": 1}, 1)
        metrics.update(stats())


def test_a_process_has_one_set() -> None:
    assert process_metrics() is process_metrics()


FEED = """
from sgkv.metrics import Metrics
import sys
assert "prometheus_client" not in sys.modules
import os
os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]
Metrics().observe("get", "cpu", 0.001, {"ok": 2}, 1)
"""
COLLECT = """
import sys
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry, path=sys.argv[1])
print(generate_latest(registry).decode())
"""


def test_ranks_add_up_in_the_servers_own_endpoint(tmp_path: Path) -> None:
    for code in (FEED, FEED, COLLECT):
        command = [sys.executable, "-c", code, str(tmp_path)]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert 'sgkv_tier_items_total{op="get",status="ok",tier="cpu"} 4.0' in printed


def test_the_documentation_names_every_metric(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.observe("put", "cpu", 0.001, {"ok": 1}, 1)
    metrics.update(stats(evicted=1))
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(sgkv_[a-z_]+)` ", page, re.MULTILINE))
    exported = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        if not family.name.endswith("_created")
    }
    counted = {f"sgkv_{name}_total" for name in HELP}
    assert exported | counted == documented
