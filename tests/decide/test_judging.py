"""Decisions judged by what reads took: right and wrong, of loading and of computing."""

from __future__ import annotations

import pytest

from sgkv.decide import Decision, Gate, Judge, Mode, Prefill, Verdict

PAGE_TOKENS = 64
PREFILL = Prefill(6_400)  # a page takes 10 ms to compute


def judged(
    decision: Decision, first: int, pages: int, seconds: float, control: float = 0.0
) -> Verdict | None:
    judge = Judge(Gate(Mode.SHADOW, PREFILL, {}, control_s=control))
    judge.expect("a", 10, decision)
    return judge.verdict("a", first, pages, 1000, PAGE_TOKENS, seconds)


@pytest.mark.parametrize(
    ("worth", "seconds", "verdict"),
    [
        (8, 0.05, Verdict.LOAD_RIGHT),
        (8, 0.09, Verdict.LOAD_WRONG),
        (0, 0.09, Verdict.COMPUTE_RIGHT),
        (0, 0.05, Verdict.COMPUTE_WRONG),
    ],
)
def test_what_a_read_took_says_who_was_right(worth: int, seconds: float, verdict: Verdict) -> None:
    assert judged(Decision(8, 8, worth=worth), 10, 8, seconds) is verdict


def test_parts_are_judged_by_what_was_decided_about_them() -> None:
    half = Decision(4, 8, worth=4)
    assert judged(half, 10, 4, 0.01) is Verdict.LOAD_RIGHT
    assert judged(half, 14, 4, 0.01) is Verdict.COMPUTE_WRONG
    assert judged(half, 12, 4, 0.01) is None, "one part of it was to be loaded, the other not"


def test_only_the_first_read_of_a_load_bears_what_does_not_depend_on_size() -> None:
    whole = Decision(8, 8, worth=8)
    assert judged(whole, 10, 4, 0.03, control=0.02) is Verdict.LOAD_WRONG
    assert judged(whole, 14, 4, 0.03, control=0.02) is Verdict.LOAD_RIGHT


@pytest.mark.parametrize(("first", "pages"), [(9, 2), (16, 4), (10, 0)])
def test_what_was_not_decided_about_is_not_judged(first: int, pages: int) -> None:
    assert judged(Decision(8, 8, worth=8), first, pages, 0.01) is None
    assert judged(Decision(8, 8, learning=True), 10, 8, 0.01) is None


def test_sequences_are_kept_apart_and_forgotten() -> None:
    judge = Judge(Gate(Mode.SHADOW, PREFILL, {}))
    for number in range(5000):
        judge.expect(str(number), 0, Decision(8, 8, worth=8))
    assert judge.verdict("0", 0, 8, 1000, PAGE_TOKENS, 0.01) is None
    assert judge.verdict("4999", 0, 8, 1000, PAGE_TOKENS, 0.01) is Verdict.LOAD_RIGHT
