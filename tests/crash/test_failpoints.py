"""The places where a crash test may strike."""

from __future__ import annotations

import re
import timeit
from pathlib import Path

from sgkv.backends import failpoints

_SOURCES = Path(__file__).parents[2]
_FREE = 1e-6
"""Seconds; a blob's publication takes 50 of these at least."""


def test_every_place_in_the_code_is_listed_and_every_listed_one_is_there() -> None:
    files = [*(_SOURCES / "backends").rglob("*.py"), *(_SOURCES / "sgkv" / "store").rglob("*.py")]
    named = [re.findall(r'failpoints\.passing\("([a-z.]+)"\)', path.read_text()) for path in files]
    assert sorted({name for names in named for name in names}) == sorted(failpoints.POINTS)


def test_an_armed_action_sees_what_is_passed_until_disarmed() -> None:
    seen: list[str] = []
    failpoints.arm(seen.append)
    try:
        failpoints.passing("put.opened")
    finally:
        failpoints.disarm()
    failpoints.passing("put.renamed")
    assert seen == ["put.opened"]


def test_a_place_costs_nothing_that_counts() -> None:
    passes = 100_000
    took = min(timeit.repeat(lambda: failpoints.passing("put.opened"), number=passes, repeat=5))
    assert took / passes < _FREE
