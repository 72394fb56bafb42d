"""Each call of the engine comes back in time, whatever below it does not."""

import threading
from typing import Any

import pytest

from sgkv.backends.base import Backend
from sgkv.backends.disk import DiskBackend
from sgkv.backends.guard import Guarded
from sgkv.sglang.hicache import SgkvHiCache
from tests.faults.calls import KEYS, NOTHING, PAGES, READS, SLACK, WRITES, all_in_time, timed
from tests.faults.conftest import DEADLINE, Stall
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, write

pytestmark = pytest.mark.slow

ENGINE = {"exists_deadline": DEADLINE, "get_deadline": DEADLINE, "set_deadline": DEADLINE}
MEASURED = {"enable_storage_metrics": True}
HASTY = {"tail_delay": 0.01, "drain_timeout": 0.5}


def below(backend: SgkvHiCache, kind: type[Backend]) -> Any:
    """The part of this kind among what stands between the store and the first tier's disk."""
    part = backend.store.tiers[0].backend
    while not isinstance(part, kind):
        part = part.inner
    return part


def test_a_tier_that_hangs(disk_rig: Rig, stalls: Stall) -> None:
    tiers = stalls()
    kv = make.mha()
    backend = disk_rig.backend(kv, MEASURED, engine=ENGINE)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    tiers[0].stalled = True
    assert all_in_time(backend, [*READS, *WRITES], DEADLINE) == NOTHING
    assert not backend.store.counters.get("internal_errors")


def test_a_tier_that_hangs_below_memory(rig: Rig, stalls: Stall) -> None:
    """What is in memory is served and taken as ever; the rest of the chain is missed in time."""
    tiers = stalls()
    kv = make.mha()
    backend = rig.backend(kv, MEASURED, engine=ENGINE, write_behind=HASTY)
    tiers[0].stalled = True
    assert write(backend, kv, KEYS, range(PAGES)) == [True] * PAGES
    answers = all_in_time(backend, [*READS, *WRITES], DEADLINE)
    assert answers["batch_exists"] == PAGES
    assert answers["batch_get_v1"] == answers["batch_set_v1"] == [True] * PAGES


@pytest.mark.parametrize("ttl", [None, "1us"], ids=["corrupt", "expired"])
def test_a_tier_that_hangs_while_bad_blobs_are_taken_out(
    disk_rig: Rig, stalls: Stall, ttl: str | None
) -> None:
    """Far below the patience that writes have: each of these calls has that of a lookup."""
    tiers = stalls(put_deadline=30)
    kv = make.mha()
    backend = disk_rig.backend(kv, engine=ENGINE, ttl=ttl)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    if ttl is None:
        for path in (disk_rig.folder / "blobs").rglob("*"):
            if path.is_file():
                path.write_bytes(b"\xff" * path.stat().st_size)
    tiers[0].only = frozenset({"touch", "quarantine", "delete"})
    tiers[0].stalled = True
    answer, took = timed(READS["batch_get_v1"], backend)
    assert answer == [False] * PAGES
    assert took < 4 * DEADLINE + SLACK


def test_writes_after_a_clear_that_a_tier_did_not_answer(disk_rig: Rig, stalls: Stall) -> None:
    """Each tries the clear again, and shows nothing of before until it succeeds."""
    tiers = stalls(put_deadline=30)
    kv = make.mha()
    backend = disk_rig.backend(kv, engine=ENGINE)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    tiers[0].stalled = True
    backend.clear()
    answer, took = timed(WRITES["batch_set_v1"], backend)
    assert answer == [False] * PAGES
    assert took < 2 + DEADLINE + SLACK
    tiers[0].stop()
    assert timed(WRITES["batch_set_v1"], backend)[0] == [True] * PAGES
    assert backend.batch_exists(KEYS, after()) == 0


def test_two_tiers_that_hang_cost_one_deadline(disk_rig: Rig, stalls: Stall) -> None:
    tiers = stalls(deadline=3 * DEADLINE)
    kv = make.mha()
    disks = [
        {"type": "disk", "name": name, "path": str(disk_rig.folder / name), "min_free": 0} for name in "ab"
    ]
    backend = disk_rig.backend(kv, MEASURED, engine=ENGINE, tiers=disks)
    for tier in tiers:
        tier.stalled = True
    for name, call in (READS | WRITES).items():
        answer, took = timed(call, backend)
        assert answer == NOTHING[name]
        assert took < DEADLINE + SLACK


def test_a_tier_whose_threads_are_gone(disk_rig: Rig) -> None:
    kv = make.mha()
    backend = disk_rig.backend(kv, MEASURED, engine=ENGINE)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    disk = below(backend, DiskBackend)
    for pool in (disk._readers, disk._writers):
        assert pool.close(5)
    answers = all_in_time(backend, [*READS, *WRITES], DEADLINE)
    assert {name: answers[name] for name in WRITES} == {name: NOTHING[name] for name in WRITES}
    assert answers["batch_get_v1"] == NOTHING["batch_get_v1"]


def test_a_guard_whose_threads_are_gone(disk_rig: Rig) -> None:
    kv = make.mha()
    backend = disk_rig.backend(kv, MEASURED, engine=ENGINE)
    assert all(write(backend, kv, KEYS, range(PAGES)))
    assert below(backend, Guarded)._pool.close(5)
    assert all_in_time(backend, [*READS, *WRITES], DEADLINE) == NOTHING


def test_a_machine_that_starts_no_thread(disk_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = make.mha()
    backend = disk_rig.backend(kv, MEASURED, engine=ENGINE)

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert all_in_time(backend, [*READS, *WRITES], DEADLINE) == NOTHING


def test_a_full_queue_drops_and_does_not_wait(
    rig: Rig, stalls: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgkv.store.session._DISCARD_TIMEOUT", 0.2)
    tiers = stalls(deadline=30)
    kv = make.mha(pages=64)
    queue = {"max_bytes": 4 * 24576, "tail_delay": 0.01, "drain_timeout": 0.5}
    backend = rig.backend(kv, MEASURED, engine=ENGINE, write_behind=queue)
    tiers[0].stalled = True
    for seed in range(20, 28):
        assert write(backend, kv, chain(PAGES, seed=seed), range(PAGES)) == [True] * PAGES
    assert backend.store.counters.get("write_behind_dropped_pages") > 0
    assert backend.store.stats().write_behind_bytes <= 4 * 24576
    assert read(backend, kv, chain(PAGES, seed=27), range(PAGES)) == [True] * PAGES
    all_in_time(backend, list(WRITES), DEADLINE)
