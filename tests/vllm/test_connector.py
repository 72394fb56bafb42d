"""The connector in real vLLM engines: KV between blocks and a store, with no host memory of vLLM's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sgkv.testing.vllm import Answer, VllmEngine
from tests.vllm.rig import DEADLINES, FULL_TOKENS, PATIENT, Rig, blobs, damage, prompt, same

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SHARED, LONG, TIERS, OWN = 1, 2, 3, 4
COMPATIBLE = {"model": {"numerics": "compatible", "numerics_class": "llama-family float32"}}


@dataclass(frozen=True, slots=True)
class Written:
    """What an engine stored."""

    folder: Path
    cold: Answer
    long: Answer
    """To a prompt of which the next turn is asked later."""


@pytest.fixture(scope="module")
def written(rig: Rig) -> Written:
    folder = rig.root / "connected"
    with rig.connected(folder, store=COMPATIBLE) as engine:
        cold, long = engine.one(prompt(SHARED)), engine.one(prompt(LONG), 100)
        engine.settle()
    return Written(folder, cold, long)


@pytest.fixture(scope="module")
def reader(rig: Rig, written: Written) -> Iterator[VllmEngine]:
    with rig.connected(written.folder, store=COMPATIBLE) as engine:
        yield engine


def test_a_new_engine_answers_from_what_another_stored(reader: VllmEngine, written: Written) -> None:
    answer = reader.one(prompt(SHARED))
    assert answer.cached_tokens == FULL_TOKENS
    assert same(answer, written.cold)
    assert same(reader.one(prompt(SHARED), salt="computed"), written.cold)


def test_our_counts_are_of_pages_that_were_loaded(reader: VllmEngine) -> None:
    before = reader.metrics()
    reader.reset()
    assert reader.one(prompt(SHARED)).cached_tokens == FULL_TOKENS
    after = reader.metrics()
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["vllm:sgkv_hit_pages disk"] * 64 == FULL_TOKENS
    assert grown["vllm:prompt_tokens_cached_by_source disk"] == FULL_TOKENS


def test_a_load_goes_on_where_vllms_own_cache_ends_within_a_page(
    reader: VllmEngine, written: Written
) -> None:
    reader.reset()
    reader.one([*prompt(SHARED)[:100], *prompt(50, 20)], salt=None)  # 96 tokens of it are in blocks now
    before = reader.metrics()["vllm:prompt_tokens_cached_by_source disk"]
    reader.one([*prompt(SHARED)[:100], *prompt(51, 20)])
    answer = reader.one(prompt(SHARED))
    loaded = reader.metrics()["vllm:prompt_tokens_cached_by_source disk"] - before
    assert (answer.cached_tokens, loaded) == (FULL_TOKENS, FULL_TOKENS - 96)
    assert same(answer, written.cold)


def test_the_next_turn_finds_generated_tokens_too(reader: VllmEngine, written: Written) -> None:
    turn = [*prompt(LONG), *written.long.output_ids, *prompt(77, 50)]
    assert reader.one(turn).cached_tokens > FULL_TOKENS


def test_the_tier_and_the_connector_read_each_others_pages(
    rig: Rig, reader: VllmEngine, written: Written
) -> None:
    with rig.engine(written.folder, store=COMPATIBLE) as tiered:
        assert same(tiered.one(prompt(SHARED)), written.cold)
        assert tiered.metrics()["vllm:sgkv_hit_pages disk"] * 64 == FULL_TOKENS
        cold = tiered.one(prompt(TIERS))
        tiered.settle()
        answer = reader.one(prompt(TIERS))  # while the engine that stored it goes on
    assert answer.cached_tokens == FULL_TOKENS
    assert same(answer, cold)


def test_other_weights_find_nothing(rig: Rig, written: Written) -> None:
    with rig.connected(written.folder, seed=2, store=COMPATIBLE) as other:
        answer = other.one(prompt(SHARED))
        assert answer.cached_tokens == 0
        assert not same(answer, written.cold)


def test_loads_that_fail_are_computed(rig: Rig, written: Written) -> None:
    """Each is promised, and fails; none is tried twice."""
    folder = rig.root / "damaged pages"
    shutil.copytree(written.folder, folder)
    damage(folder)
    with rig.connected(folder, store=COMPATIBLE) as engine:
        answers = engine.generate([prompt(SHARED), prompt(LONG)])
        counted = engine.metrics()
        again = engine.one(prompt(SHARED), salt="computed")
    assert [answer.finish_reason for answer in answers] == ["length", "length"]
    assert same(answers[0], written.cold)
    assert same(again, written.cold)
    assert counted["vllm:sgkv_failed_loads"] == 2 * FULL_TOKENS // 64
    assert counted["vllm:sgkv_miss_pages corrupt"] > 0


def test_a_tier_that_hangs_is_a_miss_and_not_waited_for(rig: Rig, written: Written) -> None:
    tier = {"type": "disk", "path": str(written.folder), "capacity": "1GiB", "faults": {"hang": 1.0}}
    bounds = {"exists_deadline": 0.25, "get_deadline": 0.5, "set_deadline": 0.5}
    with rig.connected(written.folder, store=COMPATIBLE | {"tiers": [tier], "engine": bounds}) as engine:
        answer = engine.one(prompt(SHARED))
        engine.settle()  # every save has ended, too
    assert (answer.cached_tokens, answer.finish_reason) == (0, "length")
    assert same(answer, written.cold)
    assert answer.ttft_s < 20.0


def test_preempted_requests_are_answered_right_and_stored_right(rig: Rig, written: Written) -> None:
    asked = [prompt(seed) for seed in range(40, 43)]
    folder = rig.root / "small"
    with rig.connected(folder, num_gpu_blocks_override=38, max_model_len=1024) as small:
        answers = small.generate([prompt(SHARED), *asked], 80)  # two of them fit until they have grown
        counted = small.metrics()
        small.settle()
        small.reset()
        stored = small.one(prompt(SHARED))
        alone = small.one(asked[0], 80, salt="own")
    assert counted["vllm:num_preemptions"] > 0
    assert answers[0].output_ids[:16] == written.cold.output_ids
    assert answers[1].output_ids == alone.output_ids
    assert stored.output_ids == written.cold.output_ids


def test_layers_with_a_window_are_restored_with_the_others_or_not_at_all(rig: Rig) -> None:
    folder = rig.root / "connected windows"
    with rig.connected(folder, "gemma3") as engine:
        cold = engine.one(prompt(SHARED))
        engine.settle()
    with rig.connected(folder, "gemma3") as engine:
        warm = engine.one(prompt(SHARED))
        counted = engine.metrics()
        engine.reset()
        damage(folder)
        failed = engine.one(prompt(SHARED))
    assert warm.cached_tokens == FULL_TOKENS
    assert counted["vllm:sgkv_hit_pages disk"] > FULL_TOKENS // 64  # of more than one group
    assert same(warm, cold)
    assert same(failed, cold)


def test_pages_in_memory_are_loaded_layer_by_layer(rig: Rig, written: Written) -> None:
    disk = {"type": "disk", "path": str(written.folder), "capacity": "1GiB", "deadlines": PATIENT}
    tiers = {"tiers": [{"type": "cpu", "capacity": "64MiB"}, disk], "engine": DEADLINES}
    with rig.connected(written.folder, store=COMPATIBLE | tiers) as engine:
        cold = engine.one(prompt(OWN))
        engine.settle()
        engine.reset()
        warm = engine.one(prompt(OWN))
        counted = engine.metrics()
    assert warm.cached_tokens == FULL_TOKENS
    assert counted["vllm:prompt_tokens_cached_by_source host"] == FULL_TOKENS
    assert counted["vllm:sgkv_hit_pages cpu"] == FULL_TOKENS // 64
    assert same(warm, cold)


def test_a_prefill_engine_stores_and_a_decode_engine_loads(rig: Rig, written: Written) -> None:
    folder = rig.root / "split"
    with (
        rig.connected(folder, role="kv_producer") as prefill,
        rig.connected(folder, role="kv_consumer") as decode,
    ):
        first = prefill.one(prompt(SHARED), 1)
        answer = decode.generate([prompt(SHARED)], transfer=first.transfer)[0]  # at once, as a router would
        prefill.reset()
        assert prefill.one(prompt(SHARED), 1).cached_tokens == 0
        stored = len(blobs(folder))
        decode.one(prompt(OWN))
        decode.settle()
    assert answer.cached_tokens == FULL_TOKENS
    assert same(answer, written.cold)
    assert len(blobs(folder)) == stored


def test_pages_smaller_than_a_block_of_vllms(rig: Rig) -> None:
    with rig.connected(rig.root / "small pages", store={"page_tokens": 32}, block_size=128) as engine:
        cold = engine.one(prompt(SHARED))
        engine.settle()
        engine.reset()
        warm = engine.one(prompt(SHARED))
    assert warm.cached_tokens == FULL_TOKENS
    assert same(warm, cold)


def test_a_reset_of_every_cache_forgets_what_was_stored(reader: VllmEngine, written: Written) -> None:
    assert reader.reset(connector=True)
    answer = reader.one(prompt(SHARED))
    assert answer.cached_tokens == 0
    assert same(answer, written.cold)
    reader.settle()
    reader.reset()
    assert reader.one(prompt(SHARED)).cached_tokens == FULL_TOKENS
