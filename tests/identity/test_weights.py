"""The weights fingerprint: content, not names."""

import json
import shutil

import pytest

from sgkv import weights
from sgkv.weights import architecture, fingerprint


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"rope_theta": 10000.0, "_name_or_path": "here"}))
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 16384)  # 4 MiB
    return folder


def _flip(file, offset):
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def test_a_copy_elsewhere_is_the_same_model(model, tmp_path):
    before = fingerprint(model)
    assert fingerprint(shutil.copytree(model, tmp_path / "elsewhere")) == before


def test_one_flipped_weight_is_another_model(model):
    before = fingerprint(model)
    _flip(model / "model.safetensors", 1_234_567)
    assert fingerprint(model) != before


def test_a_config_fact_is_another_model_and_a_name_is_not(model):
    before = fingerprint(model), architecture(model)
    (model / "config.json").write_text(json.dumps({"rope_theta": 10000.0, "_name_or_path": "there"}))
    assert (fingerprint(model), architecture(model)) == before
    (model / "config.json").write_text(json.dumps({"rope_theta": 500000.0}))
    assert fingerprint(model) != before[0]
    assert architecture(model) != before[1]


def test_large_checkpoints_are_sampled_unless_told_otherwise(model, monkeypatch):
    monkeypatch.setattr(weights, "FULL_READ_BYTES", 0)
    sampled, full = fingerprint(model), fingerprint(model, read_all=True)
    _flip(model / "model.safetensors", 500_000)  # between two samples
    assert fingerprint(model) == sampled
    assert fingerprint(model, read_all=True) != full
    _flip(model / "model.safetensors", 1 << 20)  # in a sample
    assert fingerprint(model) != sampled


def test_hub_blobs_are_known_by_their_name(model, tmp_path):
    name = "ab" * 32
    blob = tmp_path / name
    (model / "model.safetensors").rename(blob)
    (model / "model.safetensors").symlink_to(blob)
    before = fingerprint(model)
    _flip(blob, 0)  # never happens in a content-addressed cache: shows that it is not read
    assert fingerprint(model) == before


def test_nothing_to_read_is_no_identity(tmp_path):
    assert fingerprint(tmp_path) is None
    assert fingerprint(tmp_path / "missing") is None
    assert architecture(tmp_path) == "unknown"
