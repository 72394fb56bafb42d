"""Statistics, clear and close, as SGLang's scheduler thread calls them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sglang.srt.observability.metrics_collector import StorageMetrics, StorageMetricsCollector

from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.pools import Pools, slots

KEYS = chain(6)
MEASURED = {"enable_storage_metrics": True}


@pytest.fixture
def kv() -> Pools:
    return make.mha()


def found(backend: SgkvHiCache, seed: int = 0) -> int:
    return backend.batch_exists(chain(6, seed=seed), after())


def test_statistics_are_drained_by_reading(disk_rig: Rig, kv: Pools) -> None:
    """One sample a transfer: pages, and GB/s."""
    backend = disk_rig.backend(kv, MEASURED)
    assert backend.get_stats() is None
    write(backend, kv, KEYS[:4], range(4))
    write(backend, kv, KEYS[4:], range(4, 6), KEYS[:4])
    read(backend, kv, KEYS, range(6, 12))
    stats = backend.get_stats()
    assert isinstance(stats, StorageMetrics)
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([4, 2], [6])
    assert len(stats.backup_bandwidth) == 2
    assert all(rate > 0 for rate in stats.backup_bandwidth + stats.prefetch_bandwidth)
    assert backend.get_stats() is None


def test_sglang_takes_our_statistics(disk_rig: Rig, kv: Pools) -> None:
    """Its collector checks the type and feeds its own histograms."""
    labels = {"storage_backend": "sgkv"}
    collector = StorageMetricsCollector(labels)
    backend = disk_rig.backend(kv, MEASURED)
    write(backend, kv, KEYS, range(6))
    for _ in range(2):
        collector.log_storage_metrics(backend.get_stats())
    assert REGISTRY.get_sample_value("sglang:backup_pgs_count", labels) == 1
    assert REGISTRY.get_sample_value("sglang:backup_pgs_sum", labels) == 6


def test_a_miss_moves_nothing_and_is_no_sample(disk_rig: Rig, kv: Pools) -> None:
    backend = disk_rig.backend(kv, MEASURED)
    read(backend, kv, KEYS, range(6))
    assert backend.get_stats() is None


def test_statistics_nobody_reads_are_bounded(rig: Rig, kv: Pools) -> None:
    backend = rig.backend(kv, MEASURED)
    write(backend, kv, KEYS[:1], [0])
    for _ in range(1100):
        read(backend, kv, KEYS[:1], [1])
    stats = backend.get_stats()
    assert len(stats.prefetch_pgs) + len(stats.backup_pgs) == 1024


def test_without_metrics_there_are_no_statistics(disk_rig: Rig, kv: Pools) -> None:
    backend = disk_rig.backend(kv)
    write(backend, kv, KEYS, range(6))
    assert backend.get_stats() is None


def test_every_page_asked_for_is_a_hit_or_has_a_reason(tiered_rig: Rig, kv: Pools) -> None:
    backend = tiered_rig.backend(kv)
    write(backend, kv, KEYS[:4], range(4))
    read(backend, kv, KEYS, range(6, 12))
    found(backend)
    counters = backend.store.counters.snapshot()
    assert sum(counters["hit_pages"].values()) == 4
    assert counters["miss_pages"] == {"absent": 2}
    assert counters["lookup_pages"] == {"hit": 4, "absent": 2}


def test_clear_forgets_every_pool_of_this_model(tiered_rig: Rig, kv: Pools) -> None:
    swa = make.mha(layers=2)
    backend = tiered_rig.backend(kv, side={"swa": swa})
    at = slots(range(6), 16)
    backend.batch_set_v2([transfer("swa", KEYS, at)], after())
    write(backend, kv, KEYS, range(6))
    assert backend.store.flush(30)
    backend.clear()
    assert found(backend) == 0
    assert backend.batch_get_v2([transfer("swa", KEYS, at)], after()) == {"swa": [False] * 6}
    assert write(backend, kv, KEYS, range(6)) == [True] * 6
    assert found(backend) == 6


def test_clear_forgets_what_still_waits_to_be_written(rig: Rig, kv: Pools) -> None:
    backend = rig.backend(kv)
    write(backend, kv, KEYS, range(6))
    backend.clear()
    backend.close()
    assert found(rig.backend(kv)) == 0


OTHERS = {"tenant": {"tenant": "other"}, "model": {"model": {"weights": "r2"}}}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_clear_leaves_others_alone(disk_rig: Rig, kv: Pools, other: dict[str, Any]) -> None:
    """Other tenants, other models, and other ranks of the same folder."""
    ours, theirs = disk_rig.backend(kv), disk_rig.backend(kv, **other)
    rank = disk_rig.backend(kv, {"tp_rank": 1, "tp_size": 2})
    for backend in (ours, theirs, rank):
        write(backend, kv, KEYS, range(6))
    ours.clear()
    assert [found(backend) for backend in (ours, theirs, rank)] == [0, 6, 6]


def test_clear_is_seen_by_the_next_start(disk_rig: Rig, kv: Pools) -> None:
    backend = disk_rig.backend(kv)
    write(backend, kv, KEYS, range(6))
    backend.clear()
    backend.close()
    assert found(disk_rig.backend(kv)) == 0


def test_close_writes_what_waits_and_can_be_repeated(rig: Rig, kv: Pools) -> None:
    """Tails wait a minute here; the close does not."""
    backend = rig.backend(kv)
    write(backend, kv, KEYS, range(6))
    backend.close()
    backend.close()
    assert found(rig.backend(kv)) == 6


LATER: dict[str, Callable[[SgkvHiCache, Pools], Any]] = {
    "lookup": lambda backend, _: found(backend),
    "lookup of pools": lambda backend, _: backend.batch_exists_v2(KEYS, [transfer("kv", KEYS)]).kv_hit_pages,
    "set": lambda backend, kv: any(write(backend, kv, KEYS, range(6))),
    "get": lambda backend, kv: any(read(backend, kv, KEYS, range(6))),
    "flat set": lambda backend, kv: backend.batch_set(KEYS[:1], [kv.host.get_data_page(0)]),
    "flat get": lambda backend, kv: backend.batch_get(KEYS[:1], [kv.host.get_dummy_flat_data_page()])[0],
    "clear": lambda backend, _: backend.clear(),
    "statistics": lambda backend, _: backend.get_stats(),
    "registration": lambda backend, kv: backend.register_mem_host_pool_v2(kv.host, "late"),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER.keys())
def test_after_close_everything_misses(
    tiered_rig: Rig, kv: Pools, later: Callable[[SgkvHiCache, Pools], Any]
) -> None:
    backend = tiered_rig.backend(kv)
    write(backend, kv, KEYS, range(6))
    backend.close()
    assert not later(backend, kv)
    assert not backend.store.counters.get("internal_errors")


def test_close_leaves_no_thread_behind(tiered_rig: Rig, kv: Pools) -> None:
    """Attach and detach at runtime, many times over."""
    before = set(threading.enumerate())
    for _ in range(3):
        backend = tiered_rig.backend(kv)
        write(backend, kv, KEYS, range(6))
        backend.close()
    assert set(threading.enumerate()) <= before


def test_a_store_that_cannot_be_opened_is_refused_with_the_field(disk_rig: Rig) -> None:
    """The one moment where failing is better than serving nothing."""
    with pytest.raises(ValueError, match=r"tiers\.0\.capacity \(the extra config\)"):
        disk_rig.bare(tiers=[{"type": "cpu", "capacity": "much"}])
