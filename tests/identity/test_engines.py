"""How engines name what they store: pinned, because a change of a name loses all that was stored under it.

Checkpoints here are folders that can be fingerprinted; nothing loads them.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sgkv.config import Config, ModelConfig
from sgkv.identity import Namespace
from sgkv.model import ModelFacts, identify
from sgkv.sglang.naming import pool_namespace
from sgkv.vllm.naming import shared_namespace
from sgkv.vllm.rows import Packing, RowShape

NOBODY = "private 0"
SHARED = ModelConfig(numerics="compatible", numerics_class="c")
ROWS = RowShape(Packing.VEC, "float32", 4, layers=3, block_tokens=16, heads=2, head_dim=32)


def checkpoint(folder: Path, weights: bytes = b"one") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"rope_theta": 1}))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def facts(model: Path | None, **changes: object) -> ModelFacts:
    plain = {
        "model": model, "loading": "", "doubt": "", "overrides": "{}", "producer": "engine/1",
        "numerics": "engine 1", "started": float("inf"),
    }  # fmt: skip
    return ModelFacts(**{**plain, **changes})


def of_sglang(config: Config, model: ModelFacts) -> Namespace:
    """The one rank of a server whose host pool has three layers of two heads."""
    rank = SimpleNamespace(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_size=1, dcp_size=1, is_mla_model=False
    )
    pool = SimpleNamespace(
        name="kv", page_size=16, layout=ROWS.layout(16), kind="", heads_sharded=True,
        pool=SimpleNamespace(start_layer=0, end_layer=3),
    )  # fmt: skip
    return pool_namespace(config, identify(config, model, NOBODY, ""), rank, pool, "")


def of_vllm(config: Config, model: ModelFacts) -> Namespace:
    return shared_namespace(config, identify(config, model, NOBODY, ""), ROWS, 16, "")


def test_both_engines_give_the_same_pages_the_same_name(tmp_path: Path) -> None:
    model = facts(checkpoint(tmp_path / "model"))
    config = Config(chunk_tokens=64, model=SHARED)
    names = [of_sglang(config, model), of_vllm(config, model)]
    assert names[0] == names[1]
    assert names[0].digest == "7a5ff27591fc1367faa684fef159f532"


REVISED = SHARED.model_copy(update={"weights": "r1"})
GOLDEN = {
    "model": (SHARED, {}, "files model 31a26634fae03dbcbea9e55fec88eb974d3c2992e20b377a9de0465ed413859a "),
    "quantized": (
        SHARED, {"loading": "quantization=fp8"},
        "files model 31a26634fae03dbcbea9e55fec88eb974d3c2992e20b377a9de0465ed413859a quantization=fp8",
    ),
    "revision": (REVISED, {}, "revision r1 "),
    "revision of doubtful files": (REVISED, {"doubt": "made up"}, "revision r1 "),
    "doubtful files": (SHARED, {"doubt": "made up"}, NOBODY),
    "files that are newer than the process": (SHARED, {"started": 0.0}, NOBODY),
    "an adapter that is not there": (SHARED, {"adapters": (None,)}, NOBODY),
    "revision, and such an adapter": (REVISED, {"adapters": (None,)}, "revision r1 adapter None "),
}  # fmt: skip


@pytest.mark.parametrize(("model", "changes", "weights"), GOLDEN.values(), ids=GOLDEN.keys())
def test_weights_have_these_names(
    tmp_path: Path, model: ModelConfig, changes: dict[str, object], weights: str
) -> None:
    found = identify(Config(model=model), facts(checkpoint(tmp_path / "model"), **changes), NOBODY, "")
    assert found.weights == weights


def test_drafts_and_adapters_are_named_in_any_order(tmp_path: Path) -> None:
    one, two = checkpoint(tmp_path / "a", b"a"), checkpoint(tmp_path / "b", b"b")
    main = checkpoint(tmp_path / "model")
    both = [
        identify(Config(), facts(main, adapters=order, drafts=(one,)), NOBODY, "").weights
        for order in ((one, two), (two, one))
    ]
    assert both[0] == both[1]
    assert both[0].split()[1::2] == ["adapter", "adapter", "draft", "model"]


def test_an_engine_that_says_nothing_keeps_to_itself_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    found = identify(Config(), None, NOBODY, "nobody asked", "vllm")
    assert (found.weights, found.architecture, found.producer) == (NOBODY, "unknown", "vllm")
    assert ["nobody asked" in record.message for record in caplog.records] == [True]
