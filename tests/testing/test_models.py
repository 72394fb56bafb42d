"""Tiny models: equal bytes for equal arguments, loadable by engines, any text tokenizes."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from sgkv.testing.architectures import ARCHITECTURES
from sgkv.testing.models import write_model

SMALL = ["llama", "mla", "swa"]


def digests(path: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}


@pytest.mark.parametrize("kind", SMALL)
def test_equal_arguments_write_equal_bytes(tmp_path: Path, kind: str):
    first, second, other = (
        digests(write_model(tmp_path / name, kind, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == second
    assert {name for name in first if first[name] != other[name]} == {"model.safetensors"}


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "mla"])
def test_transformers_finds_every_weight_and_no_other(tmp_path: Path, kind: str):
    path = write_model(tmp_path / kind, kind)
    _, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_size_and_dtype_can_be_chosen(tmp_path: Path, kind: str):
    path = write_model(tmp_path / kind, kind, layers=2, hidden=64, dtype="bfloat16", intermediate_size=96)
    config = json.loads((path / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"], config["dtype"]) == (2, 64, "bfloat16")
    with safe_open(path / "model.safetensors", "pt") as weights:
        layers = {name.split(".")[2] for name in weights.keys() if name.startswith("model.layers.")}  # noqa: SIM118
        gate = weights.get_slice("model.layers.0.mlp.gate_proj.weight")
        assert layers == {"0", "1"}
        assert (gate.get_shape(), gate.get_dtype()) == ([96, 64], "BF16")


def test_sglang_sees_both_kinds_of_layers_and_the_window(tmp_path: Path):
    from sglang.srt.configs.model_config import get_hybrid_layer_ids, is_hybrid_swa_model
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(str(write_model(tmp_path / "swa", "swa")), trust_remote_code=False)
    assert is_hybrid_swa_model(config.architectures, config)
    assert get_hybrid_layer_ids(config.architectures, config) == ([0, 2], [1, 3])
    assert config.sliding_window == 128


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return AutoTokenizer.from_pretrained(write_model(tmp_path_factory.mktemp("model"), "llama"))


@given(text=st.text())
def test_a_token_is_a_byte(tokenizer, text: str):
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
