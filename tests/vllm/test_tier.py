"""The tier under real vLLM engines: what one stored the next one finds, and what must not be found is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sgkv.testing.vllm import Answer, VllmEngine
from sgkv.vllm.leftovers import orphans
from tests.vllm.rig import FULL_TOKENS, Rig, damage, prompt, same

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SHARED, LONG = 1, 2
STOCK = {"kv_connector": "OffloadingConnector", "kv_connector_module_path": None}


@dataclass(frozen=True, slots=True)
class Written:
    """What an engine stored before it was killed."""

    folder: Path
    cold: Answer
    long: Answer
    """To a prompt of which the next turn is asked later."""
    left: list[Path]
    """Its files in shared memory."""


@pytest.fixture(scope="module")
def written(rig: Rig) -> Iterator[Written]:
    folder = rig.root / "kv"
    engine = rig.engine(folder)
    cold, long = engine.one(prompt(SHARED)), engine.one(prompt(LONG), 100)
    engine.settle()
    left = engine.kill()
    yield Written(folder, cold, long, left)
    for path in left:
        path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def reader(rig: Rig, written: Written) -> Iterator[VllmEngine]:
    with rig.engine(written.folder) as engine:
        yield engine


def test_an_engine_without_a_store_answers_the_same(rig: Rig, written: Written) -> None:
    with rig.engine(None) as plain:
        assert same(written.cold, plain.one(prompt(SHARED)))


def test_a_new_engine_finds_what_a_killed_one_stored(reader: VllmEngine, written: Written) -> None:
    answer = reader.one(prompt(SHARED))
    assert answer.cached_tokens == FULL_TOKENS
    assert same(answer, written.cold)


def test_our_counts_are_of_pages_that_were_loaded(reader: VllmEngine) -> None:
    before = reader.metrics()
    reader.reset()
    asked = prompt(LONG)
    answer = reader.one(asked)
    counted = reader.metrics()
    hits = counted["vllm:sgkv_hit_pages disk"] - before.get("vllm:sgkv_hit_pages disk", 0)
    assert hits * 64 == answer.cached_tokens == FULL_TOKENS
    assert counted["vllm:prompt_tokens_cached_by_source disk"] >= FULL_TOKENS


def test_the_next_turn_finds_generated_tokens_too(reader: VllmEngine, written: Written) -> None:
    turn = [*prompt(LONG), *written.long.output_ids, *prompt(77, 50)]
    assert reader.one(turn).cached_tokens > FULL_TOKENS


def test_a_killed_engine_leaves_memory_that_is_named(written: Written) -> None:
    assert len(written.left) == 1
    assert written.left[0] in orphans(settled=0.0)


def test_other_weights_find_nothing(rig: Rig, written: Written) -> None:
    with rig.engine(written.folder, seed=2) as other:
        answer = other.one(prompt(SHARED))
        assert answer.cached_tokens == 0
        assert same(answer, other.one(prompt(SHARED), salt="own"))


def test_bytes_of_other_weights_would_be_noticed(rig: Rig, written: Written) -> None:
    """The control of the comparison: with the same revision for both, an engine reads the other's KV."""
    folder, store = rig.root / "one revision", {"model": {"weights": "the same"}}
    with rig.engine(folder, seed=2, store=store) as other:
        other.one(prompt(SHARED))
        other.settle()
    with rig.engine(folder, store=store) as engine:
        answer = engine.one(prompt(SHARED))
    assert answer.cached_tokens == FULL_TOKENS
    assert not same(answer, written.cold)


def test_the_stock_connector_keeps_to_its_own_launch(rig: Rig, written: Written) -> None:
    """It does not tell a tier which weights it serves."""
    with rig.engine(written.folder, connector=STOCK, host_bytes=3 << 20) as engine:
        first = engine.one(prompt(SHARED))
        assert first.cached_tokens == 0
        engine.settle()
        engine.reset()
        engine.generate([prompt(seed) for seed in range(20, 24)], 1)  # push the first out of host memory
        engine.settle()
        engine.reset()
        again = engine.one(prompt(SHARED))
        assert again.cached_tokens == FULL_TOKENS
        assert engine.metrics()["vllm:sgkv_hit_pages disk"] > 0
        assert same(again, first)


def test_damaged_blobs_are_computed_anew(rig: Rig, written: Written) -> None:
    """Each load fails after the tier has promised it; vLLM's policy for that would be to end the request."""
    folder = rig.root / "damaged"
    shutil.copytree(written.folder, folder)
    damage(folder)
    with rig.engine(folder) as engine:
        answer = engine.one(prompt(SHARED))
        counted = engine.metrics()
    assert (answer.cached_tokens, answer.finish_reason) == (0, "length")
    assert same(answer, written.cold)
    assert counted["vllm:sgkv_failed_loads"] > 0
    assert counted["vllm:sgkv_miss_pages corrupt"] == counted["vllm:sgkv_failed_loads"]


def test_in_shadow_nothing_is_loaded_and_what_was_there_is_counted(rig: Rig, written: Written) -> None:
    with rig.engine(written.folder, store={"rollout": {"mode": "shadow"}}) as engine:
        answer = engine.one(prompt(SHARED))
        counted = engine.metrics()
    assert answer.cached_tokens == 0
    assert same(answer, written.cold)
    assert counted["vllm:sgkv_held_back_tokens"] == FULL_TOKENS


def test_a_tier_that_hangs_is_a_miss_and_not_waited_for(rig: Rig, written: Written) -> None:
    tier = {"type": "disk", "path": str(written.folder), "capacity": "1GiB", "faults": {"hang": 1.0}}
    bounds = {"exists_deadline": 0.25, "get_deadline": 0.5, "set_deadline": 0.5}
    with rig.engine(written.folder, store={"tiers": [tier], "engine": bounds}) as engine:
        answer = engine.one(prompt(SHARED))
        engine.settle()  # every job has ended, too
        counted = engine.metrics()
    assert (answer.cached_tokens, answer.finish_reason) == (0, "length")
    assert same(answer, written.cold)
    assert answer.ttft_s < 20.0
    assert counted["vllm:sgkv_lookup_chunks miss"] == FULL_TOKENS // 64
    assert "vllm:sgkv_written_bytes disk" not in counted


def test_host_memory_smaller_than_a_prompt_costs_hits_and_nothing_else(rig: Rig, written: Written) -> None:
    with rig.engine(written.folder, host_bytes=3 * 64 * 2 * 4 * 2 * 32 * 4) as engine:
        answers = engine.generate([prompt(SHARED), prompt(LONG), prompt(33)])
    assert all(answer.finish_reason == "length" for answer in answers)
    assert same(answers[0], written.cold)


def test_preempted_requests_are_answered_right(rig: Rig, written: Written) -> None:
    asked = [prompt(seed) for seed in range(40, 43)]
    with rig.engine(written.folder, num_gpu_blocks_override=38, max_model_len=1024) as small:
        answers = small.generate([prompt(SHARED), *asked], 80)  # two of them fit until they have grown
        counted = small.metrics()
        alone = small.one(asked[0], 80, salt="own")
    assert counted["vllm:num_preemptions"] > 0
    assert answers[0].output_ids[:16] == written.cold.output_ids
    assert answers[1].output_ids == alone.output_ids


def test_layers_with_a_window_are_restored_with_the_others(rig: Rig) -> None:
    folder = rig.root / "windows"
    with rig.engine(folder, "gemma3") as engine:
        cold = engine.one(prompt(SHARED))
        engine.settle()
    with rig.engine(folder, "gemma3") as engine:
        warm = engine.one(prompt(SHARED))
        counted = engine.metrics()
    assert warm.cached_tokens >= FULL_TOKENS - 64
    assert same(warm, cold)
    assert counted["vllm:sgkv_hit_pages disk"] > FULL_TOKENS // 64  # of more than one group


def test_a_reset_of_every_cache_forgets_what_was_stored(
    reader: VllmEngine, rig: Rig, written: Written
) -> None:
    """VLLM resets its caches when weights change, and does not say why."""
    assert reader.reset(connector=True)
    answer = reader.one(prompt(SHARED))
    assert answer.cached_tokens == 0
    assert same(answer, written.cold)
    reader.settle()
    reader.reset()
    assert reader.one(prompt(SHARED)).cached_tokens == FULL_TOKENS
