"""SGLang and vLLM read each other's KV, on real engines; and what would be wrong KV is noticed.

`make demo ENGINE=both` plays the other models.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from sgkv.demo import matrix
from sgkv.demo.replies import ask_vllm, compare
from sgkv.testing.models import write_model
from sgkv.testing.vllm import VllmHost
from sgkv.vllm.launch import connector_config
from tests.cross.scrambled import scramble

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

KIND, DTYPE = "llama", "float32"
PROMPTS = matrix.prompts(1, 2)


@dataclass(frozen=True, slots=True)
class Played:
    """A model that both engines have served over one store."""

    folder: Path
    rows: list[matrix.Row]


@pytest.fixture(scope="module")
def llama(vllm_host: VllmHost, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("llama")
    return Played(folder, matrix.play(vllm_host, folder, KIND, DTYPE, count=2))


def test_in_float32_both_answer_from_foreign_kv_as_from_their_own(llama: Played) -> None:
    assert [(row.writer, row.reader) for row in llama.rows] == [("sglang", "vllm"), ("vllm", "sglang")]
    assert [row.complaints for row in llama.rows] == [[], []]
    assert all(row.found.equal_outputs == 2 for row in llama.rows)


def test_an_engine_of_one_rank_and_one_of_two_share_the_cells_of_a_grid(
    vllm_host: VllmHost, tmp_path: Path
) -> None:
    rows = matrix.play(vllm_host, tmp_path, KIND, DTYPE, count=2, ranks=2)
    assert [row.complaints for row in rows] == [[], []]


def test_in_bfloat16_no_token_changes_that_the_reader_was_sure_of(
    vllm_host: VllmHost, tmp_path: Path
) -> None:
    rows = matrix.play(vllm_host, tmp_path, "qwen3", "bfloat16", count=2)
    assert [row.complaints for row in rows] == [[], []]


def test_the_connector_reads_what_sglang_has_stored(vllm_host: VllmHost, llama: Played) -> None:
    settings = matrix.configuration(llama.folder / "kv", KIND, DTYPE)
    with vllm_host.start(llama.folder / "model", connector_config(settings)) as engine:
        found = compare(PROMPTS, ask_vllm(engine), "connector")
    assert matrix.Row(KIND, DTYPE, "sglang", "vllm", found).complaints == []


def test_another_model_of_the_same_shape_finds_nothing(
    vllm_host: VllmHost, llama: Played, tmp_path: Path
) -> None:
    other = write_model(tmp_path / "model", KIND, seed=2, hidden=256, head_dim=64)
    settings = matrix.configuration(llama.folder / "kv", KIND, DTYPE)
    with vllm_host.start(other, matrix.transfer(settings)) as engine:
        assert compare(PROMPTS, ask_vllm(engine)).cached_tokens == 0


def test_bytes_that_nobody_converted_would_be_noticed(
    vllm_host: VllmHost, llama: Played, tmp_path: Path
) -> None:
    assert scramble(llama.folder / "kv", tmp_path / "kv") > 0
    settings = matrix.configuration(tmp_path / "kv", KIND, DTYPE)
    with vllm_host.start(llama.folder / "model", matrix.transfer(settings)) as engine:
        found = compare(PROMPTS, ask_vllm(engine), "control")
    assert found.cached_tokens == matrix.FULL_PAGE_TOKENS
    assert matrix.Row(KIND, DTYPE, "sglang", "vllm", found).complaints
    assert found.equal_outputs == 0
