"""How the answers of two engines are compared, and what makes a row of the matrix a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sgkv.demo.matrix import FULL_PAGE_TOKENS, Row
from sgkv.demo.replies import Ask, Comparison, Reply, compare

OWN = Reply([1, 2, 3], [-0.5, -0.5, -0.5], [0.1, 2.0, 2.0], 0)
PERFECT = Comparison(3, FULL_PAGE_TOKENS, 3, 1e-6, 0)


def engine(shared: Reply, own: Reply = OWN) -> Ask:
    """Answers every prompt alike, from its own computation under a salt."""

    def ask(_prompt: Sequence[int], salt: str | None) -> Reply:
        return own if salt else shared

    return ask


def test_equal_answers_differ_by_their_largest_difference() -> None:
    shared = replace(OWN, logprobs=[-0.5, -0.75, -0.5], cached_tokens=512)
    assert compare([[1], [2]], engine(shared)) == Comparison(2, 512, 2, 0.25, 0)


def test_a_token_that_changes_counts_only_where_the_reader_was_sure() -> None:
    near_tie = replace(OWN, output_ids=[9, 9, 9], logprobs=[-9.0, -9.0, -9.0])
    assert compare([[1]], engine(near_tie)) == Comparison(1, 0, 0, 0.0, 0)
    sure = replace(OWN, output_ids=[1, 9, 9])
    assert compare([[1]], engine(sure)).changed_past_margin == 1


def test_a_reference_that_came_from_a_cache_is_none() -> None:
    with pytest.raises(RuntimeError, match="not computed"):
        compare([[1]], engine(OWN, replace(OWN, cached_tokens=64)))


@pytest.mark.parametrize(
    ("dtype", "found", "complaints"),
    [
        ("float32", PERFECT, 0),
        ("float32", replace(PERFECT, cached_tokens=FULL_PAGE_TOKENS - 64), 1),
        ("float32", replace(PERFECT, equal_outputs=2), 1),
        ("float32", replace(PERFECT, largest_difference=1e-3), 1),
        ("bfloat16", replace(PERFECT, equal_outputs=2, largest_difference=3e-2), 0),
        ("bfloat16", replace(PERFECT, changed_past_margin=1), 1),
    ],
)
def test_float32_is_exact_and_16_bits_are_judged_by_their_margin(
    dtype: str, found: Comparison, complaints: int
) -> None:
    row = Row("llama", dtype, "sglang", "vllm", found)
    assert len(row.complaints) == complaints
    assert row.as_json()["ok"] is not bool(complaints)
