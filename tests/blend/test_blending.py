"""Reuse of documents wherever they stand, on tiny models with random weights; what is exact is exact."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sgkv.backends.deadline import Deadline
from sgkv.blend.blending import Plan, Reused, blend
from sgkv.blend.engine import Decoder
from sgkv.blend.rope import Rope, UnknownRopeError
from sgkv.blend.segments import SEGMENT_TOKENS, Windows, documents, fingerprints
from sgkv.blend.storing import SegmentStore
from sgkv.config import load, resolve
from sgkv.identity import Namespace
from sgkv.store.build import build_store
from sgkv.testing.models import write_model

SCALINGS = {
    "plain": {},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "yarn": {
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    },
}  # fmt: skip
SECONDS = 20.0
PAGE = 16


def tokens_of(seed: int, count: int) -> torch.Tensor:
    return torch.randint(2, 258, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blend")


@pytest.fixture(scope="module")
def model(folder: Path) -> Decoder:
    return Decoder.load(write_model(folder / "model", "llama", layers=6))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_it_computes_what_transformers_does(folder: Path, kind: str, scaling: str) -> None:
    path = write_model(folder / f"{kind}-{scaling}", kind, **SCALINGS[scaling])
    tokens = tokens_of(1, 200)
    logits, kv = Decoder.load(path).prefill(tokens)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        answer = theirs(tokens[None], use_cache=True)
    assert torch.allclose(logits, answer.logits[0], atol=2e-4)
    keys = answer.past_key_values.layers[2].keys[0].transpose(0, 1)
    assert torch.allclose(kv.keys[2], keys, atol=2e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_keys_turned_are_keys_computed_there(folder: Path, scaling: str) -> None:
    """The first layer's keys depend on the token and its position alone."""
    model = Decoder.load(write_model(folder / f"turn-{scaling}", "llama", **SCALINGS[scaling]))
    hidden = model.embedded(tokens_of(2, 64))
    here, _ = model.keys_and_values(hidden, 0, torch.arange(64))
    there, _ = model.keys_and_values(hidden, 0, torch.arange(64) + 1500)
    assert torch.allclose(model.moved(here, 1500), there, atol=1e-4)
    assert torch.allclose(model.moved(there, -1500), here, atol=1e-4)


def test_scalings_that_nobody_knows_are_refused() -> None:
    config = {"num_attention_heads": 2, "hidden_size": 64}
    for unknown in ({"rope_scaling": {"rope_type": "longrope"}}, {"partial_rotary_factor": 0.5}):
        with pytest.raises(UnknownRopeError):
            Rope.of({**config, **unknown})


QUESTION = 24


def prompt(model: Decoder, sizes: tuple[int, ...] = (64, 48, 80)) -> tuple[torch.Tensor, list[Reused]]:
    """Documents, each computed on its own, and a question."""
    parts = [tokens_of(10 + at, size) for at, size in enumerate(sizes)]
    pieces, start = [], 0
    for part in parts:
        pieces.append(Reused(start, model.prefill(part)[1]))
        start += len(part)
    return torch.cat([*parts, tokens_of(99, QUESTION)]), pieces


def test_with_everything_computed_it_is_a_prefill(model: Decoder) -> None:
    tokens, pieces = prompt(model)
    logits, kv = model.prefill(tokens)
    blended = blend(model, tokens, pieces, Plan(ratio=1.0))
    assert torch.allclose(blended.logits, logits[-QUESTION:], atol=1e-4)
    assert torch.allclose(blended.kv.keys, kv.keys, atol=1e-4)
    assert blended.computed == [len(tokens)] * model.layers


def test_a_piece_at_the_start_is_a_prefix_and_right_without_any(model: Decoder) -> None:
    tokens, pieces = prompt(model, (96,))
    logits, kv = model.prefill(tokens)
    blended = blend(model, tokens, pieces, Plan(ratio=0.0))
    assert torch.allclose(blended.logits, logits[-QUESTION:], atol=1e-4)
    assert torch.allclose(blended.kv.values, kv.values, atol=1e-4)
    assert blended.computed == [QUESTION] * model.layers


def test_what_is_computed_anew_brings_answers_closer(model: Decoder) -> None:
    tokens, pieces = prompt(model)
    full, _ = model.prefill(tokens)

    def distance(ratio: float) -> float:
        return float((blend(model, tokens, pieces, Plan(ratio)).logits - full[-QUESTION:]).double().norm())

    found = [distance(ratio) for ratio in (0.0, 0.1, 0.3, 0.5)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 3
    assert distance(0.8) < 1e-3 * found[0], "the first document is a prefix, and was right from the start"


def test_only_so_many_are_computed_and_the_worst_of_them(model: Decoder) -> None:
    tokens, pieces = prompt(model)
    reused = len(tokens) - QUESTION
    computed = blend(model, tokens, pieces, Plan(ratio=0.25, first=4)).computed
    assert computed == [len(tokens)] + [QUESTION + 8 + reused // 4] * (model.layers - 1)
    narrowing = blend(model, tokens, pieces, Plan(ratio=0.5, narrowing=0.2)).computed
    assert narrowing == sorted(narrowing, reverse=True)
    assert narrowing[-1] < narrowing[1]


@pytest.mark.parametrize("starts", [(0, 32), (40, 0), (0, 200)])
def test_pieces_that_do_not_fit_are_refused(model: Decoder, starts: tuple[int, int]) -> None:
    kv = model.prefill(tokens_of(1, 64))[1]
    with pytest.raises(ValueError, match="does not fit"):
        blend(model, tokens_of(2, 128), [Reused(start, kv) for start in starts], Plan())


def test_documents_are_found_between_separators() -> None:
    separator, doc, other = [300, 301], list(range(40)), list(range(50, 85))
    found = documents([*doc, *separator, *other, *separator, 1, 2, 3], separator, PAGE)
    assert [(piece.start, piece.stop) for piece in found] == [(0, 32), (42, 74)]
    again = documents([*other, *separator, *doc, *separator], separator, PAGE)
    assert [piece.hashes for piece in again] == [found[1].hashes, found[0].hashes], "wherever they stand"
    assert documents(doc, separator, PAGE) == []


def test_windows_are_found_at_any_position() -> None:
    text, noise = tokens_of(5, 3 * SEGMENT_TOKENS + 10).tolist(), tokens_of(6, 137).tolist()
    windows = Windows(PAGE)
    learnt = windows.learn(text)
    assert [piece.start for piece in learnt] == [0, 256, 512]
    mixed = [*noise, *text[256:512], *noise[:50], *text[:256], 7]
    found = windows.find(mixed)
    assert [(piece.start, piece.hashes) for piece in found] == [
        (137, learnt[1].hashes),
        (137 + 256 + 50, learnt[0].hashes),
    ]
    mixed[200] += 1
    assert [piece.start for piece in windows.find(mixed)] == [137 + 256 + 50]
    small = Windows(PAGE, most=2)
    small.learn(text)
    assert [piece.start for piece in small.find(text)] == [256, 512]


def test_a_fingerprint_that_lies_is_found_out() -> None:
    text = tokens_of(5, SEGMENT_TOKENS).tolist()
    windows = Windows(PAGE)
    windows._known[int(fingerprints(text)[0])] = ("f" * 64,) * (SEGMENT_TOKENS // PAGE)
    assert windows.find(text) == []


def namespace(model: Decoder, **changes: str) -> Namespace:
    architecture = json.dumps(model.config, sort_keys=True)
    named = Namespace(
        tenant="t", weights="w", epoch="", architecture=architecture, numerics="torch", kv_dtype="float32",
        page_tokens=PAGE, chunk_tokens=64, pool="kv", cell="all", geometry="",
    )  # fmt: skip
    return replace(named, **changes)


def test_documents_are_stored_once_and_serve_in_any_order(model: Decoder, tmp_path: Path) -> None:
    tier = {"type": "disk", "path": str(tmp_path / "kv"), "capacity": "64MiB", "min_free": 0}
    store = build_store(resolve(load({"chunk_tokens": 64, "tiers": [tier]}, environ={}).config))
    segments = SegmentStore(store, namespace(model), model, "tests")
    separator = tokens_of(77, 3)
    docs = [tokens_of(20 + at, 96) for at in range(3)]
    for doc in docs:
        (piece,) = documents([*doc.tolist(), *separator.tolist()], separator.tolist(), PAGE)
        assert segments.put(piece, model.prefill(doc)[1], Deadline(SECONDS)) == 6
    question = tokens_of(88, QUESTION)
    tokens = torch.cat([part for at in (2, 0, 1) for part in (docs[at], separator)] + [question])
    reused = []
    for piece in documents(tokens.tolist(), separator.tolist(), PAGE):
        kv = segments.get(piece, Deadline(SECONDS))
        assert kv is not None
        reused.append(Reused(piece.start, kv))
    full, _ = model.prefill(tokens)
    blended = blend(model, tokens, reused, Plan(ratio=1.0))
    assert torch.allclose(blended.logits[-QUESTION:], full[-QUESTION:], atol=1e-4)
    stranger = SegmentStore(store, namespace(model, weights="other"), model, "tests")
    assert stranger.get(documents(tokens.tolist(), separator.tolist(), PAGE)[0], Deadline(SECONDS)) is None
    store.close()
