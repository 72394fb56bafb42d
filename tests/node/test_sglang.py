"""SGLang's adapter on a daemon: pools of SGLang's own, two real servers, and one of them killed."""

import random
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, HiCacheStorageExtraInfo
from sglang.srt.mem_cache.pool_host.common import ShmHostTensorAllocator

from sgkv.sglang.hicache import SgkvHiCache
from sgkv.testing.models import write_model
from sgkv.testing.node import NodeProcess
from sgkv.testing.server import SglangServer
from sgkv.testing.waiting import wait_until
from tests.e2e.rig import OUTPUT_TOKENS, assert_same, full_tokens, prompt
from tests.linker.conftest import LinkerRig, fill, kv, rows, same
from tests.sglang.conftest import chain, fresh_process, rank
from tests.sglang.pools import MHA_LAYOUTS, Pools, mha, mla, page_bytes, slots

__all__ = ["fresh_process"]

PATIENT = {"exists_deadline": 20, "get_deadline": 30, "set_deadline": 30}


def daemon_settings(folder: Path) -> dict[str, object]:
    disk = {"type": "disk", "path": str(folder / "kv"), "capacity": "1GiB"}
    return {"tiers": [{"type": "cpu", "capacity": "256MiB"}, disk], "write_behind": {"tail_delay": 0.05}}


def attached_settings(daemon: NodeProcess) -> dict[str, object]:
    return {"mode": "attach", "node": {"socket": str(daemon.socket), "retry": 0.2}, "engine": PATIENT}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    with NodeProcess(folder, daemon_settings(folder)) as daemon:
        yield daemon


@contextmanager
def adapter(daemon: NodeProcess, pools: Pools, seed: str, place: dict[str, object] | None = None):
    settings = {**attached_settings(daemon), "model": {"weights": seed}, "interface_v1": 1}
    backend = SgkvHiCache(HiCacheStorageConfig(**(place or rank()), extra_config=settings), {})
    backend.register_mem_pool_host(pools.host)
    yield backend
    backend.close()


def in_shared_memory(pools: Pools) -> Pools:
    """The same host pool, its buffer from SGLang's shm allocator."""
    allocator = ShmHostTensorAllocator()
    pools.host.kv_buffer = allocator.allocate(tuple(pools.host.kv_buffer.shape), pools.host.dtype, "cpu")
    pools.host.allocator = allocator
    return pools


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layout", MHA_LAYOUTS)
def test_pages_of_a_host_pool_come_back_whole(daemon, layout, shared):
    pools = in_shared_memory(mha(layout)) if shared else mha(layout)
    pools.host.kv_buffer.copy_(torch.rand(pools.host.kv_buffer.shape))
    info = HiCacheStorageExtraInfo(prefix_keys=[])
    with adapter(daemon, pools, f"{layout} {shared}") as backend:
        assert bool(backend.store._regions) is shared
        assert backend.batch_exists(chain(4), info) == 0
        assert backend.batch_set_v1(chain(4), slots(range(4), 16), info) == [True] * 4
        assert backend.batch_exists(chain(6), info) == 4
        assert backend.batch_get_v1(chain(4), slots(range(8, 12), 16), info) == [True] * 4
        for page in range(4):
            assert page_bytes(pools.host, page + 8) == page_bytes(pools.host, page)
        assert any(one["shared_bytes"] for one in daemon.status()["connections"]) is shared
        assert backend.store.counters.get("hit_pages", "cpu") == 4
        assert backend.store.counters.get("internal_errors") == 0


@pytest.mark.parametrize(("make", "kind", "shared"), [(mha, False, 0), (mla, True, 4)])
def test_two_ranks_of_one_server_share_what_is_the_same_on_both(daemon, make, kind, shared):
    """Heads belong to their rank; latents are stored by the first and read by all."""
    pools, info = make(), HiCacheStorageExtraInfo(prefix_keys=[])
    ranks = [rank(tp_rank=number, tp_size=2, is_mla_model=kind) for number in range(2)]
    with (
        adapter(daemon, pools, "ranks", ranks[0]) as first,
        adapter(daemon, make(), "ranks", ranks[1]) as second,
    ):
        assert all(first.batch_set_v1(chain(4), slots(range(4), 16), info))
        assert second.batch_exists(chain(4), info) == shared


def test_what_is_cleared_while_the_daemon_is_away_is_not_found_when_it_is_back(tmp_path):
    pools, info = mha(), HiCacheStorageExtraInfo(prefix_keys=[])
    with (
        NodeProcess(tmp_path, daemon_settings(tmp_path)) as daemon,
        adapter(daemon, pools, "cleared") as backend,
    ):
        assert all(backend.batch_set_v1(chain(4), slots(range(4), 16), info))
        assert backend.store.flush(30)
        daemon.kill()
        backend.clear()
        assert backend.batch_exists(chain(4), info) == 0
        daemon.start()
        wait_until(lambda: daemon.status()["tiers"]["disk"]["blobs"] > 0, "the files to be found", 10)
        wait_until(lambda: not backend.store.away, "the engine to attach again", 10)
        assert backend.batch_exists(chain(4), info) == 0
        assert daemon.status()["tiers"]["disk"]["blobs"] == 0


def test_the_linker_attaches_too(daemon, tmp_path):
    kvcache, rig = mha().device, LinkerRig(tmp_path)
    fill(kvcache, 1)
    linked = rig.open(kvcache, **{**attached_settings(daemon), "chunk_tokens": 256})
    written = rows(kvcache, range(1, 7))
    assert linked.offload([kv(chain(6), range(1, 7))])
    assert linked.lookup([kv(chain(6))]) == [1, 2, 3, 4, 5, 6]
    assert linked.load([kv(chain(6), [15, 10, 12, 11, 14, 13])])
    assert same(rows(kvcache, [15, 10, 12, 11, 14, 13]), written)
    assert linked.counted("hit_pages", "cpu") == 6
    linked.linker.close()


@pytest.fixture(scope="module")
def servers(daemon, tmp_path_factory):
    """Two real servers of one model on one daemon."""
    folder = tmp_path_factory.mktemp("servers")
    model = write_model(folder / "model", "llama", seed=1)

    def server(name: str) -> SglangServer:
        return SglangServer(
            model, log_path=folder / name, storage="sgkv", storage_config=attached_settings(daemon),
            metrics=True, extra_args=["--sleep-on-idle"],
        )  # fmt: skip

    one, two = server("one"), server("two")
    with ThreadPoolExecutor(2) as starters:
        list(starters.map(SglangServer.start, (one, two)))
    yield one, two
    one.kill()
    two.kill()


def again(server: SglangServer, ids: list[int]):
    """The answer after SGLang has dropped its own cache."""
    server.flush()
    return server.generate(ids, OUTPUT_TOKENS)


def stored_pages(daemon: NodeProcess) -> int:
    return daemon.status()["tiers"]["cpu"]["blobs"]


def engines(daemon: NodeProcess) -> set[int]:
    """Processes that are attached, but for those that only look."""
    return {one["pid"] for one in daemon.status()["connections"] if one["namespaces"]}


def cold(daemon: NodeProcess, server: SglangServer, ids: list[int]):
    """The answer to a prompt nobody has stored, once its pages are in the daemon."""
    before = stored_pages(daemon)
    answer = again(server, ids)
    assert answer.cached_tokens == 0
    wait_until(lambda: stored_pages(daemon) - before == full_tokens(ids, 64) // 64, "the pages to be stored")
    return answer


def assert_restored(answer, expected, ids):
    assert answer.cached_by_tier.get("storage", 0) == answer.cached_tokens == full_tokens(ids, 64)
    assert_same(answer, expected)


@pytest.mark.server
class TestTwoServers:
    """In order: the last tests kill what the first ones need."""

    def test_each_finds_what_the_other_stored(self, daemon, servers):
        one, two = servers
        for writer, reader, seed in ((one, two, 1), (two, one, 2)):
            ids = prompt(seed)
            expected = cold(daemon, writer, ids)
            assert_restored(again(reader, ids), expected, ids)
        assert "host pools in shared memory" in one.log_text()
        assert any(connection["shared_bytes"] for connection in daemon.status()["connections"])

    def test_one_killed_in_the_middle_of_its_traffic_leaves_nothing_held(self, daemon, servers):
        one, two = servers
        prompts = [prompt(seed) for seed in range(10, 16)]
        assert len(engines(daemon)) == 2
        with ThreadPoolExecutor(len(prompts)) as clients:
            answers = [clients.submit(one.generate, ids, OUTPUT_TOKENS) for ids in prompts]
            wait(answers, timeout=random.Random(1).uniform(0.3, 1.0))
            one.kill()
        wait_until(lambda: len(engines(daemon)) == 1, "its end to be noticed", 1)
        wait_until(lambda: not daemon.status()["tiers"]["cpu"]["leases"], "its leases", 5)
        ids = prompt(1)
        assert again(two, ids).cached_by_tier.get("storage", 0) == full_tokens(ids, 64)

    def test_a_daemon_killed_and_started_serves_the_running_engine_from_disk(self, daemon, servers):
        _, two = servers
        ids = prompt(1)
        expected = again(two, ids)
        wait_until(lambda: not daemon.status()["write_behind_bytes"], "everything to be on disk", 30)
        stored = daemon.status()["tiers"]["disk"]["blobs"]
        daemon.kill()
        without = again(two, ids)
        assert without.cached_tokens == 0
        assert_same(without, expected)
        daemon.start()
        wait_until(lambda: f"{daemon.socket} is back" in two.log_text(), "the engine to attach again", 10)
        wait_until(lambda: daemon.status()["tiers"]["disk"]["blobs"] >= stored, "the files to be found", 30)
        assert_restored(again(two, ids), expected, ids)
