"""Which servers share KV: those for which every fact that decides its values is equal."""

import time
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch
from sglang.srt.lora.lora_registry import LoRARef
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.utils import get_storage_hash_str

from sgkv.sglang.launch import LAUNCH_ID
from sgkv.testing.waiting import wait_until
from tests.sglang import pools as make
from tests.sglang.conftest import Rig, after, chain, published, write
from tests.sglang.pools import Pools

KEYS = chain(5)
AUTO = {"weights": "auto"}


def checkpoint(folder: Path, weights: bytes = b"one", **config: Any) -> Path:
    """A folder that can be fingerprinted; nothing in these tests loads it."""
    folder.mkdir()
    settings = {"rope_theta": 10000, "_name_or_path": str(folder), **config}
    (folder / "config.json").write_text(repr(settings).replace("'", '"'))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def server(model: Path, **fields: Any) -> Any:
    return published(model_path=str(model), **fields)


def store(rig: Rig, pools: Pools | None = None, **options: Any) -> None:
    pools = pools or make.mha()
    assert write(rig.backend(pools, **{"model": AUTO, **options}), pools, KEYS, range(5)) == [True] * 5


def found(rig: Rig, pools: Pools | None = None, **options: Any) -> int:
    return rig.backend(pools or make.mha(), **{"model": AUTO, **options}).batch_exists(KEYS, after())


def test_the_same_weights_in_another_folder_under_another_name_hit(disk_rig: Rig, tmp_path: Path) -> None:
    with server(checkpoint(tmp_path / "a"), served_model_name="a"):
        store(disk_rig)
    with server(checkpoint(tmp_path / "b"), served_model_name="b"):
        assert found(disk_rig) == 5


OTHER_MODELS = {
    "weights": {"weights": b"two"},
    "config": {"rope_theta": 20000},
}


@pytest.mark.parametrize("other", OTHER_MODELS.values(), ids=OTHER_MODELS.keys())
def test_another_checkpoint_never_hits(disk_rig: Rig, tmp_path: Path, other: dict[str, Any]) -> None:
    """Also under the same path: a name is no identity."""
    with server(checkpoint(tmp_path / "model")):
        store(disk_rig)
    (tmp_path / "model").rename(tmp_path / "old")
    with server(checkpoint(tmp_path / "model", **other)):
        assert found(disk_rig) == 0


OTHER_SERVERS = {
    "quantization": {"quantization": "fp8"},
    "quantization at load": {"modelopt_quant": "fp8"},
    "profile of a quantizing loader": {"rl_quant_profile": "/profile"},
    "implementation": {"model_impl": "transformers"},
    "kernels of matrix products": {"fp8_gemm_runner_backend": "triton"},
    "dtype of recurrent state": {"mamba_ssm_dtype": "float16"},
    "weights of another process": {"load_format": "remote_instance"},
    "weights of a weight cache": {"weight_cache_mode": "client"},
    "overrides": {"json_model_override_args": '{"rope_theta": 5}'},
    "attention kernel": {"attention_backend": "torch_native"},
    "compute dtype": {"dtype": "bfloat16"},
    "made-up weights": {"load_format": "dummy"},
}


@pytest.mark.parametrize("other", OTHER_SERVERS.values(), ids=OTHER_SERVERS.keys())
def test_another_way_to_serve_it_never_hits(disk_rig: Rig, tmp_path: Path, other: dict[str, Any]) -> None:
    model = checkpoint(tmp_path / "model")
    with server(model):
        store(disk_rig)
    with server(model, **other):
        assert found(disk_rig) == 0


def test_a_draft_model_is_part_of_the_weights(disk_rig: Rig, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    drafts = [checkpoint(tmp_path / name, name.encode()) for name in ("draft-1", "draft-2")]
    with server(model, speculative_draft_model_path=str(drafts[0])):
        store(disk_rig)
        assert found(disk_rig) == 5
    with server(model, speculative_draft_model_path=str(drafts[1])):
        assert found(disk_rig) == 0
    with server(model):
        assert found(disk_rig) == 0


def adapters(*folders: Path) -> dict[str, Any]:
    """As SGLang publishes `--lora-paths`; their ids, and so the keys, follow from name and path."""
    return {"enable_lora": True, "lora_paths": [LoRARef("0" * 32, "adapter", str(path)) for path in folders]}


@pytest.mark.parametrize("model_weights", ["auto", "revision-1"])
def test_an_adapter_is_known_by_its_content(disk_rig: Rig, tmp_path: Path, model_weights: str) -> None:
    """SGLang gives adapters of its command line the same id at every start, whatever lies there then."""
    model, adapter = checkpoint(tmp_path / "model"), checkpoint(tmp_path / "adapter")
    options = {"model": {"weights": model_weights}}
    with server(model, **adapters(adapter)):
        store(disk_rig, **options)
        assert found(disk_rig, **options) == 5
    (adapter / "model.safetensors").write_bytes(b"two")
    with server(model, **adapters(adapter)):
        assert found(disk_rig, **options) == 0
    with server(model):
        assert found(disk_rig, **options) == 0


def test_files_that_changed_under_a_running_server_are_not_its_weights(disk_rig: Rig, tmp_path: Path) -> None:
    """Attached at runtime, after the next version was put in place for the next start."""
    model = checkpoint(tmp_path / "model")
    with server(model):
        wait_until(lambda: time.time() > (model / "config.json").stat().st_ctime + 0.05, "the next tick")
        (model / "model.safetensors").write_bytes(b"two")
        store(disk_rig)
        assert found(disk_rig) == 5
    with server(model):
        assert found(disk_rig) == 0


def test_scales_of_the_kv_are_known_by_their_content(disk_rig: Rig, tmp_path: Path) -> None:
    """They decide what is written into an fp8 pool; the file may change under its name."""
    model, scales = checkpoint(tmp_path / "model"), tmp_path / "scales.json"
    scales.write_text("one")
    fields = {"kv_cache_dtype": "fp8_e4m3", "quantization_param_path": str(scales)}
    with server(model, **fields):
        store(disk_rig)
        assert found(disk_rig) == 5
    scales.write_text("two")
    with server(model, **fields):
        assert found(disk_rig) == 0


def test_both_kinds_of_fp8_lie_in_the_same_bytes_and_never_meet(disk_rig: Rig, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    with server(model, kv_cache_dtype="fp8_e4m3"):
        store(disk_rig, make.mha(dtype=torch.float8_e4m3fn))
        assert found(disk_rig, make.mha(dtype=torch.float8_e4m3fn)) == 5
    with server(model, kv_cache_dtype="fp8_e5m2"):
        assert found(disk_rig, make.mha(dtype=torch.float8_e5m2)) == 0


OTHER_STORES = {
    "tenant": {"tenant": "other"},
    "tokens a chunk": {"chunk_tokens": 128},
    "revision": {"model": {"weights": "r2"}},
    "numerics": {"model": {"numerics": "compatible", "numerics_class": "reviewed"}},
}


@pytest.mark.parametrize("other", OTHER_STORES.values(), ids=OTHER_STORES.keys())
def test_another_configuration_never_hits(disk_rig: Rig, tmp_path: Path, other: dict[str, Any]) -> None:
    with server(checkpoint(tmp_path / "model")):
        store(disk_rig)
        assert found(disk_rig, **other) == 0


def test_an_operators_revision_stands_for_any_files(disk_rig: Rig, tmp_path: Path) -> None:
    revision = {"weights": "2026-11"}
    with server(checkpoint(tmp_path / "a")):
        store(disk_rig, model=revision)
    with server(checkpoint(tmp_path / "b", b"resaved, the same values")):
        assert found(disk_rig, model=revision) == 5


def test_a_compatible_class_is_shared_by_other_kernels(disk_rig: Rig, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model")
    shared = {**AUTO, "numerics": "compatible", "numerics_class": "llama-family bf16"}
    with server(model, attention_backend="torch_native"):
        store(disk_rig, model=shared)
    with server(model, attention_backend="flashinfer"):
        assert found(disk_rig, model=shared) == 5


def test_a_salt_sets_prompts_apart(disk_rig: Rig) -> None:
    """The salt seeds SGLang's own hash chain, so no later stage can forget it."""
    tokens = array("q", range(80))
    keys = {
        salt: get_storage_hash_str(RadixKey(tokens, cache_salt=salt), page_size=16)
        for salt in (None, "a", "b")
    }
    kv = make.mha()
    backend = disk_rig.backend(kv)
    assert write(backend, kv, keys["a"], range(5)) == [True] * 5
    assert {salt: backend.batch_exists(hashes, after()) for salt, hashes in keys.items()} == {
        None: 0, "a": 5, "b": 0,
    }  # fmt: skip


UNREADABLE = {
    "no such files": lambda tmp_path: {"model_path": str(tmp_path / "nowhere")},
    "made-up weights": lambda tmp_path: {
        "model_path": str(checkpoint(tmp_path / "model")), "load_format": "dummy",
    },
}  # fmt: skip


@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_weights_that_cannot_be_known_are_private_to_a_launch(
    disk_rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fields: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ranks and restarted backends of one launch share; the next launch finds nothing."""
    with published(**fields(tmp_path)):
        monkeypatch.setenv(LAUNCH_ID, "first")
        store(disk_rig)
        assert found(disk_rig) == 5
        monkeypatch.setenv(LAUNCH_ID, "second")
        assert found(disk_rig) == 0
    assert any("model.weights" in record.message for record in caplog.records)


def test_a_process_that_is_no_server_keeps_to_itself(disk_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCH_ID, "first")
    store(disk_rig)
    assert found(disk_rig) == 5
    monkeypatch.setenv(LAUNCH_ID, "second")
    assert found(disk_rig) == 0
