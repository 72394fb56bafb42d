"""After an update of weights: which processes find each other's KV again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sgkv.sglang import lifecycle
from sgkv.sglang.hicache import SgkvHiCache
from sgkv.sglang.launch import LAUNCH_ID
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, write
from tests.sglang.engine import Engine
from tests.sglang.pools import Pools

KEYS = chain(5)


def found(backend: SgkvHiCache) -> int:
    return backend.batch_exists(KEYS, after())


@contextmanager
def process(monkeypatch: pytest.MonkeyPatch, launch: str) -> Iterator[None]:
    """Another scheduler process: of the same launch, or of another server or restart."""
    with monkeypatch.context() as patch:
        patch.setenv(LAUNCH_ID, launch)
        patch.setattr(lifecycle, "_state", type(lifecycle._state)())
        patch.setattr(lifecycle, "_backends", type(lifecycle._backends)())
        yield


def checkpoint(folder: Path, weights: bytes) -> str:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return str(folder)


def after_update(rig: Rig, engine: Engine, kv: Pools, tp_rank: int = 0, **update: Any) -> SgkvHiCache:
    """A rank of a model whose KV all ranks share, after one update."""
    backend = rig.backend(kv, {"is_mla_model": True, "tp_rank": tp_rank, "tp_size": 2})
    engine.update(**update)
    return backend


def test_ranks_of_one_launch_agree_after_an_update(
    engine: Engine, disk_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pushed weights are known to nobody else, but every rank got the same."""
    kv = make.mla()
    with process(monkeypatch, "one launch"):
        assert all(write(after_update(disk_rig, engine, kv), kv, KEYS, range(5)))
    with process(monkeypatch, "one launch"):
        assert found(after_update(disk_rig, engine, kv, tp_rank=1)) == 5
    with process(monkeypatch, "another launch"):
        assert found(after_update(disk_rig, engine, kv)) == 0


def test_launches_agree_on_weights_that_came_from_disk(
    engine: Engine, disk_rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their files name them, wherever they lie."""
    kv = make.mla()
    new = {name: checkpoint(tmp_path / name, content) for name, content in
           {"a": b"new", "copy of a": b"new", "b": b"newer"}.items()}  # fmt: skip
    disk = "update_weights_from_disk"
    with process(monkeypatch, "first"):
        assert all(
            write(after_update(disk_rig, engine, kv, name=disk, model_path=new["a"]), kv, KEYS, range(5))
        )
    with process(monkeypatch, "second"):
        assert found(after_update(disk_rig, engine, kv, name=disk, model_path=new["copy of a"])) == 5
        assert found(after_update(disk_rig, engine, kv, name=disk, model_path=new["b"])) == 0
        assert found(after_update(disk_rig, engine, kv, name=disk, model_path=str(tmp_path / "nothing"))) == 0
        assert found(after_update(disk_rig, engine, kv, name=disk, model_path=new["a"])) == 5
