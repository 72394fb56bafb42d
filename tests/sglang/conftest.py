"""Backends over SGLang's own pools, opened and closed the way its controllers do it.

`rig` keeps a disk folder over restarts; `published` makes this process say what a server's would
about its model. Page hashes are SGLang's.
"""

import time
import typing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
)
from sglang.srt.mem_cache.utils import get_hash_str
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.runtime_context import get_context
from sglang.srt.server_args import ServerArgs

from sgkv import boundary
from sgkv.sglang import facts, lifecycle
from sgkv.sglang.hicache import SgkvHiCache
from tests.sglang.engine import Engine
from tests.sglang.pools import Pools, slots

PATIENT = {"contains": 30, "get": 30, "put": 30}
"""Deadlines that a busy machine does not miss."""


def chain(pages: int, page_size: int = 16, seed: int = 0, prior: str | None = None) -> list[str]:
    """Hashes of a sequence of tokens; sequences of different seeds share nothing."""
    tokens = range(seed * 1_000_000, seed * 1_000_000 + pages * page_size)
    return get_hash_str(list(tokens), prior, page_size) if pages else []


def after(*before: str) -> HiCacheStorageExtraInfo:
    """What SGLang passes where prefix keys are on: the hashes from the start of the sequence."""
    return HiCacheStorageExtraInfo(prefix_keys=list(before))


def transfer(
    name: str, keys: Sequence[str], indices: torch.Tensor | None = None, *, trailing: bool = False
) -> PoolTransfer:
    policy = PoolHitPolicy.TRAILING_PAGES if trailing else PoolHitPolicy.ALL_PAGES
    return PoolTransfer(PoolName(name), host_indices=indices, keys=list(keys), hit_policy=policy)


def rank(**changes: Any) -> dict[str, Any]:
    """Fields of HiCacheStorageConfig for one rank alone."""
    alone = {
        "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1,
        "is_mla_model": False, "enable_storage_metrics": False, "is_page_first_layout": True,
        "model_name": "served-name",
    }  # fmt: skip
    return {**alone, **changes}


@dataclass
class Rig:
    """Opens backends over one disk folder."""

    folder: Path
    tiers: str = "cpu+disk"
    opened: list[SgkvHiCache] = field(default_factory=list)

    def bare(self, place: dict[str, Any] | None = None, **options: Any) -> SgkvHiCache:
        """A backend before any pool is registered; `options` go over the extra config."""
        tiers = {
            "cpu": {"type": "cpu", "capacity": "16MiB"},
            "disk": {
                "type": "disk", "path": str(self.folder), "capacity": "256MiB", "min_free": 0,
                "deadlines": PATIENT,
            },
        }  # fmt: skip
        extra = {
            "tiers": [tiers[name] for name in self.tiers.split("+")],
            "engine": {"exists_deadline": 30, "get_deadline": 30, "set_deadline": 30},
            "write_behind": {"tail_delay": 60, "drain_timeout": 30},
            "model": {"weights": "r1"},
            "chunk_tokens": 64,
            "interface_v1": 1,
            **options,
        }
        backend = SgkvHiCache(HiCacheStorageConfig(**rank(**(place or {})), extra_config=extra), {})
        self.opened.append(backend)
        return backend

    def backend(
        self,
        kv: Pools,
        place: dict[str, Any] | None = None,
        *,
        side: dict[str, Pools] | None = None,
        **options: Any,
    ) -> SgkvHiCache:
        """A backend that serves `kv` and `side`, registered in the order of the hybrid controller."""
        backend = self.bare(place, **options)
        backend.register_mem_pool_host(kv.host)
        for name, pools in {"kv": kv, **(side or {})}.items():
            backend.register_mem_host_pool_v2(pools.host, PoolName(name))
        backend.on_host_pools_registered()
        return backend


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    """Pools this small gain nothing from a second one, and lose time where cores are busy."""
    torch.set_num_threads(1)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "kv")
    yield rig
    for backend in rig.opened:
        backend.close()


@pytest.fixture
def disk_rig(rig: Rig) -> Rig:
    """No cpu tier: what is set is on disk when the call returns."""
    rig.tiers = "disk"
    return rig


@pytest.fixture(params=["cpu+disk", "disk"])
def tiered_rig(request: pytest.FixtureRequest, rig: Rig) -> Rig:
    rig.tiers = request.param
    return rig


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is a process of its own, as far as weights were updated and errors logged."""
    monkeypatch.setattr(lifecycle, "_state", type(lifecycle._state)())
    monkeypatch.setattr(boundary, "_throttle", type(boundary._throttle)())


@contextmanager
def own_hooks() -> Iterator[pytest.MonkeyPatch]:
    """SGLang's hook registry, empty, and undone afterwards together with what the plugin changes."""
    hints = typing.get_type_hints(ServerArgs, include_extras=True)["hicache_storage_backend"].__metadata__
    choices = next(hint.choices for hint in hints if getattr(hint, "choices", None))
    before = list(choices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HookRegistry, "_hooks", defaultdict(list))
        patch.setattr(HookRegistry, "_patched", set())
        patch.setattr(ServerArgs, "resolve_once", ServerArgs.resolve_once)
        yield patch
    choices[:] = before


@pytest.fixture(scope="module")
def hooked_engine() -> Iterator[Engine]:
    engine = Engine()
    with own_hooks() as patch:
        engine.hook(patch)
        yield engine


@pytest.fixture
def engine(hooked_engine: Engine) -> Engine:
    vars(hooked_engine).update(vars(Engine()))
    return hooked_engine


@contextmanager
def published(**fields: Any) -> Iterator[None]:
    """The configuration of a server that starts now, through SGLang's own facility for its tests.

    This process stands in for it, and began before the files that the server is given.
    """
    began = time.time()
    with pytest.MonkeyPatch.context() as patch, get_context().override_server_args(**fields):
        patch.setattr(facts, "process_start", lambda: began)
        yield


def write(
    backend: SgkvHiCache,
    pools: Pools,
    keys: Sequence[str],
    pages: Sequence[int],
    before: Sequence[str] | None = (),
) -> list[bool]:
    """One batch of KV through v1; `before` None is a server that passes no prefix keys."""
    info = None if before is None else after(*before)
    return backend.batch_set_v1(list(keys), slots(pages, pools.host.page_size), info)


def read(
    backend: SgkvHiCache,
    pools: Pools,
    keys: Sequence[str],
    pages: Sequence[int],
    before: Sequence[str] | None = (),
) -> list[bool]:
    info = None if before is None else after(*before)
    return backend.batch_get_v1(list(keys), slots(pages, pools.host.page_size), info)
