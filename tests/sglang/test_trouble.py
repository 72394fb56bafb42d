"""Trouble below the adapter: an error, a broken or hanging tier is a counted miss, and passes."""

import logging
import time
from typing import Any

import pytest
import torch
from sglang.srt.environ import envs
from sglang.srt.mem_cache.hicache_storage import _maybe_wrap_hicache_storage_failure_injector

from sgkv.backends.disk import DiskBackend
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.pools import fill, page_bytes, slots

KEYS = chain(3)


def raises(message: str) -> Any:
    def call(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(message)

    return call


READS = {
    "batch_get_v1": lambda backend: backend.batch_get_v1(KEYS, slots(range(3), 16), after()),
    "batch_get": lambda backend: backend.batch_get(KEYS, [torch.zeros(6144) for _ in KEYS]),
    "batch_get_v2": lambda backend: backend.batch_get_v2(
        [transfer("kv", KEYS, slots(range(3), 16))], after()
    ),
}
MISSED = {"batch_get_v1": [False] * 3, "batch_get": [None] * 3, "batch_get_v2": {"kv": [False] * 3}}


@pytest.mark.parametrize("call", READS)
def test_a_store_that_raises_is_a_counted_miss(
    rig: Rig, call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ours: each page has one reason, each call is counted, the log has it once."""
    backend = rig.backend(make.mha())
    arena = backend.store.tiers[0].backend
    monkeypatch.setattr(arena, "get", raises(f"broken {call}"))
    for _ in range(3):
        assert READS[call](backend) == MISSED[call]
    counters = backend.store.counters.snapshot()
    assert counters["internal_errors"] == 3
    assert counters["miss_pages"] == {"internal": 9}
    assert sum(f"broken {call}" in (record.exc_text or "") for record in caplog.records) == 1


def test_a_lookup_or_a_set_that_raises_is_contained(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = make.mha()
    backend = rig.backend(kv)
    arena = backend.store.tiers[0].backend
    for method in ("contains", "probe", "put"):
        monkeypatch.setattr(arena, method, raises("broken lookup"))
    assert backend.batch_exists(KEYS, after()) == 0
    assert backend.batch_exists_v2(KEYS, [transfer("mamba", KEYS)], after()).kv_hit_pages == 0
    assert write(backend, kv, KEYS, range(3)) == [False] * 3
    assert not backend.batch_set(KEYS, [torch.zeros(6144) for _ in KEYS])
    assert backend.store.counters.get("internal_errors") == 4


def test_a_tier_that_raises_is_a_miss_of_that_tier(disk_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the cpu tier a guard stands: its error is the tier's, not ours."""
    kv = make.mha()
    backend = disk_rig.backend(kv)
    write(backend, kv, KEYS, range(3))
    monkeypatch.setattr(DiskBackend, "get", raises("broken disk"))
    assert read(backend, kv, KEYS, range(3, 6)) == [False] * 3
    assert backend.store.counters.snapshot()["miss_pages"] == {"tier_error": 3}
    assert not backend.store.counters.get("internal_errors")


def test_a_tier_that_hangs_costs_a_deadline_and_no_more(disk_rig: Rig) -> None:
    kv = make.mha()
    write(disk_rig.backend(kv), kv, KEYS, range(3))
    hanging = {
        "type": "disk", "path": str(disk_rig.folder), "min_free": 0, "faults": {"hang": 1.0},
        "deadlines": {"contains": 0.1, "get": 0.1, "put": 0.1},
    }  # fmt: skip
    backend = disk_rig.backend(kv, tiers=[hanging])
    started = time.monotonic()
    assert backend.batch_exists(KEYS, after()) == 0
    assert read(backend, kv, KEYS, range(3, 6)) == [False] * 3
    assert write(backend, kv, chain(3, seed=1), range(3)) == [False] * 3
    backend.close()
    assert time.monotonic() - started < 20
    assert backend.store.counters.get("miss_pages", "timeout") == 3


def test_after_an_error_the_next_call_is_served(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = make.mha()
    fill(kv, seed=1)
    backend = rig.backend(kv)
    write(backend, kv, KEYS, range(3))
    with monkeypatch.context() as patch:
        patch.setattr(backend.store.tiers[0].backend, "get", raises("broken once"))
        assert read(backend, kv, KEYS, range(3, 6)) == [False] * 3
    assert read(backend, kv, KEYS, range(3, 6)) == [True] * 3
    assert [page_bytes(kv.host, page) for page in range(3, 6)] == [
        page_bytes(kv.host, page) for page in range(3)
    ]


def test_a_backend_wrapped_in_sglangs_own_failure_injector(
    disk_rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SGLang's chaos switch wraps the instance; what it lets through is served as ever."""
    caplog.set_level(logging.CRITICAL)
    kv = make.mha()
    with envs.SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE.override(0.5):
        backend = _maybe_wrap_hicache_storage_failure_injector(disk_rig.backend(kv))
        answers = {tuple(write(backend, kv, KEYS, range(3))) for _ in range(50)}
        answers |= {tuple(read(backend, kv, KEYS, range(3, 6))) for _ in range(50)}
    assert answers == {(True,) * 3, (False,) * 3}
