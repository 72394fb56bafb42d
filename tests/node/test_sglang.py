"""SGLang's adapter on a daemon: pools of SGLang's own, two real servers, and one of them killed."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, HiCacheStorageExtraInfo
from sglang.srt.mem_cache.pool_host.common import ShmHostTensorAllocator

from sgkv.sglang.hicache import SgkvHiCache
from sgkv.testing.node import NodeProcess
from tests.sglang.conftest import chain, rank
from tests.sglang.pools import MHA_LAYOUTS, Pools, mha, page_bytes, slots

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
def adapter(daemon: NodeProcess, pools: Pools, seed: str):
    settings = {**attached_settings(daemon), "model": {"weights": seed}, "interface_v1": 1}
    backend = SgkvHiCache(HiCacheStorageConfig(**rank(), extra_config=settings), {})
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
        assert backend.store.counters.get("hit_pages", "cpu") == 4
        assert backend.store.counters.get("internal_errors") == 0
