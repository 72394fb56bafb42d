"""Weights that change under a running server: nothing of the old ones is served to the new."""

import pytest

from sgkv.sglang import plugin
from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, read, transfer, write
from tests.sglang.engine import UPDATES, Engine
from tests.sglang.pools import Pools, slots

KEYS = chain(5)


@pytest.fixture
def kv() -> Pools:
    return make.mha()


@pytest.fixture
def backend(rig: Rig, kv: Pools) -> SgkvHiCache:
    """A backend in which the old weights' KV is stored."""
    backend = rig.backend(kv)
    assert write(backend, kv, KEYS, range(5)) == [True] * 5
    return backend


def found(backend: SgkvHiCache) -> int:
    return backend.batch_exists(KEYS, after())


def assert_suspended(backend: SgkvHiCache, kv: Pools) -> None:
    """As if there were no storage, in every call."""
    at = slots(range(5), 16)
    assert found(backend) == 0
    assert backend.batch_exists_v2(KEYS, [transfer("kv", KEYS)], after()).kv_hit_pages == 0
    assert write(backend, kv, KEYS, range(5)) == read(backend, kv, KEYS, range(5)) == [False] * 5
    assert backend.batch_set_v2([transfer("kv", KEYS, at)]) == {"kv": [False] * 5}
    assert backend.batch_get_v2([transfer("kv", KEYS, at)]) == {"kv": [False] * 5}


def assert_works(backend: SgkvHiCache, kv: Pools) -> None:
    """Holds nothing of these keys yet, and serves what is stored now."""
    assert found(backend) == 0
    assert write(backend, kv, KEYS, range(5)) == [True] * 5
    assert found(backend) == 5
    assert read(backend, kv, KEYS, range(5, 10)) == [True] * 5


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_that_flushes_begins_a_new_epoch(
    engine: Engine, backend: SgkvHiCache, kv: Pools, name: str
) -> None:
    engine.on_update = lambda: assert_suspended(backend, kv)
    engine.update(name)
    assert_works(backend, kv)


@pytest.mark.parametrize("watched", [True, False])
def test_it_is_said_when_updates_would_go_unnoticed(
    disk_rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, watched: bool
) -> None:
    """The explicit form works without the plugin, but only the plugin sees updates."""
    monkeypatch.setattr(plugin, "_watching", watched)
    disk_rig.backend(make.mha())
    said = [record.message for record in caplog.records if "update weights" in record.message]
    assert len(said) == (not watched)


def test_a_second_update_hides_what_the_first_stored(engine: Engine, backend: SgkvHiCache, kv: Pools) -> None:
    for _ in range(2):
        engine.update()
        assert_works(backend, kv)


@pytest.mark.parametrize("name", UPDATES)
def test_without_a_flush_the_store_waits_for_one(
    engine: Engine, backend: SgkvHiCache, kv: Pools, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine.update(name, flush_cache=False)
    assert sum("/flush_cache" in record.message for record in caplog.records) == 1
    assert_suspended(backend, kv)
    engine.idle = False
    assert not engine.flush()
    assert_suspended(backend, kv)
    engine.idle = True
    assert engine.flush()
    assert_works(backend, kv)


def test_an_update_that_failed_may_have_changed_half_of_the_weights(
    engine: Engine, backend: SgkvHiCache, kv: Pools
) -> None:
    engine.success = False
    engine.update()
    assert_suspended(backend, kv)
    engine.flush()
    assert_works(backend, kv)


def test_an_update_that_raised_is_passed_on_and_leaves_the_store_suspended(
    engine: Engine, backend: SgkvHiCache, kv: Pools
) -> None:
    engine.on_update = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        engine.update()
    assert_suspended(backend, kv)


def test_a_flush_inside_an_update_does_not_resume_before_its_end(
    engine: Engine, backend: SgkvHiCache, kv: Pools
) -> None:
    """SGLang flushes before it returns from the update."""
    engine.on_update = lambda: (engine.flush(), assert_suspended(backend, kv))
    engine.update()
    assert_works(backend, kv)


def test_a_session_whose_only_update_failed_changes_weights_at_its_end(
    engine: Engine, backend: SgkvHiCache, kv: Pools
) -> None:
    """SGLang then finishes them as after a transfer it was not told of, and flushes nothing."""
    engine.session("begin_weight_update")
    engine.success = False
    engine.update()
    engine.flush()
    engine.success = True
    engine.session("end_weight_update")
    assert_suspended(backend, kv)
    engine.flush()
    assert_works(backend, kv)


@pytest.mark.parametrize("idle", [True, False])
def test_a_backup_under_way_ends_at_its_next_batch_when_sglang_flushes(
    engine: Engine, backend: SgkvHiCache, kv: Pools, idle: bool
) -> None:
    """Flushing, SGLang waits ten seconds for its backup thread, and gives up with an exception."""
    engine.idle = idle
    engine.on_flush = lambda: assert_suspended(backend, kv)
    assert engine.flush() is idle
    assert found(backend) == 5
    assert write(backend, kv, KEYS, range(5)) == [True] * 5


def test_a_flush_without_an_update_changes_nothing(engine: Engine, backend: SgkvHiCache) -> None:
    engine.flush()
    assert found(backend) == 5


def test_a_session_is_closed_until_its_end(engine: Engine, backend: SgkvHiCache, kv: Pools) -> None:
    """The trainer's way: begin, one update a bucket of weights, the last of them flushes, end."""
    engine.session("begin_weight_update")
    assert_suspended(backend, kv)
    engine.update(flush_cache=False)
    engine.update(flush_cache=True)
    assert_suspended(backend, kv)
    engine.session("end_weight_update")
    assert_works(backend, kv)


def test_a_session_whose_updates_flushed_nothing_waits_for_a_flush(
    engine: Engine, backend: SgkvHiCache, kv: Pools, caplog: pytest.LogCaptureFixture
) -> None:
    engine.session("begin_weight_update")
    engine.update(flush_cache=False)
    engine.session("end_weight_update")
    assert_suspended(backend, kv)
    assert sum("/flush_cache" in record.message for record in caplog.records) == 1
    engine.flush()
    assert_works(backend, kv)


def test_a_session_without_a_call_changed_the_weights_all_the_same(
    engine: Engine, backend: SgkvHiCache, kv: Pools
) -> None:
    """P2P and RDMA write into the weights directly; a flush before the end says nothing about them."""
    engine.session("begin_weight_update")
    engine.flush()
    assert_suspended(backend, kv)
    engine.session("end_weight_update")
    assert_suspended(backend, kv)
    engine.flush()
    assert_works(backend, kv)


def test_a_session_that_cannot_end_stays_closed(engine: Engine, backend: SgkvHiCache, kv: Pools) -> None:
    engine.session("begin_weight_update")
    engine.update()
    engine.success = False
    engine.session("end_weight_update")
    assert_suspended(backend, kv)


def test_an_end_without_a_beginning_changes_nothing(engine: Engine, backend: SgkvHiCache) -> None:
    engine.success = False
    engine.session("end_weight_update")
    assert found(backend) == 5


def test_a_backend_attached_later_joins_the_state_of_its_process(
    engine: Engine, backend: SgkvHiCache, kv: Pools, rig: Rig
) -> None:
    """Attach at runtime, over SGLang's admin API, between an update and its flush."""
    engine.update(flush_cache=False)
    late = rig.backend(kv)
    assert_suspended(late, kv)
    engine.flush()
    assert_works(late, kv)


def test_a_detached_backend_is_left_alone(engine: Engine, backend: SgkvHiCache) -> None:
    backend.close()
    engine.update()
    assert found(backend) == 0
