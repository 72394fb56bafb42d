"""The weights fingerprint: content, not names."""

import json
import shutil

import pytest

from sgkv import weights
from sgkv.weights import architecture, changed_since, fingerprint


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


@pytest.mark.parametrize(
    "name", ["hf_quant_config.json", "params.json", "adapter_config.json", "modeling.py"]
)
def test_other_files_that_say_how_weights_are_used_are_part_of_the_model(model, name):
    without = fingerprint(model), architecture(model)
    (model / name).write_text('{"one": 1}')
    first = fingerprint(model), architecture(model)
    (model / name).write_text('{"one": 2}')
    second = fingerprint(model), architecture(model)
    assert len({without[0], first[0], second[0]}) == len({without[1], first[1], second[1]}) == 3


def test_what_does_not_decide_the_weights_is_not_part_of_the_model(model):
    before = fingerprint(model)
    (model / "tokenizer.json").write_text("{}")
    (model / "generation_config.json").write_text("{}")
    assert fingerprint(model) == before


@pytest.fixture
def old(model):
    """The model, and a moment between its last change and the file system's time by now."""
    mark = model.parent / "mark"
    last = max(file.stat().st_ctime for file in (model, *model.iterdir()))
    while True:  # file systems know the time to a tick of a few milliseconds
        mark.write_text("")
        if mark.stat().st_ctime > last:
            return model, (mark.stat().st_ctime + last) / 2


def test_a_checkpoint_that_lies_as_it_was_has_not_changed(old):
    model, moment = old
    assert not changed_since(model, moment)
    assert changed_since(model, 0.0)
    (model / "compiled.cache").write_text("")
    assert not changed_since(model, moment), "what was put beside the weights is none of them"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_written_later_has_changed(old, name):
    model, moment = old
    (model / name).write_bytes((model / name).read_bytes())
    assert changed_since(model, moment)


def test_a_checkpoint_swapped_in_under_the_same_path_has_changed(old, tmp_path):
    model, moment = old
    model.rename(tmp_path / "old")
    (tmp_path / "old").rename(model)
    assert changed_since(model, moment)


def test_a_link_set_to_another_checkpoint_has_changed(old, tmp_path):
    model, moment = old
    (tmp_path / "current").symlink_to(model)
    assert changed_since(tmp_path / "current", moment)
    assert not changed_since(model, moment)


def test_a_hub_cache_holds_only_what_never_changes(model, tmp_path):
    for number, file in enumerate(list(model.iterdir())):
        blob = tmp_path / f"{number:064x}"
        file.rename(blob)
        file.symlink_to(blob)
    model.touch()
    assert not changed_since(model, model.stat().st_ctime - 1)
