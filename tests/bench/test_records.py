"""What a record says of its bars."""

from __future__ import annotations

import json
import math

import pytest

from sgkv.bench.records import Bar, Record

RATIOS = ["ratio_to_raw", "cpu_ratio_to_raw", "ratio_to_peer"]
STATIC = ["registers", "spills", "wide_share", "stored_share", "relative_error"]
FIELDS = ["suite", "case", "value", "unit", "error", *RATIOS, *STATIC, "bar", "ok"]


def record(*bars: Bar, **figures: float) -> Record:
    return Record("suite", "case", 2.0, "ms", bars=bars, **figures)


@pytest.mark.parametrize(
    ("bar", "ok"),
    [
        (Bar("value", "<=", 2), True),
        (Bar("value", "<=", 1.9), False),
        (Bar("value", ">=", 2), True),
        (Bar("value", ">=", 2.1), False),
    ],
)
def test_a_bar_includes_its_limit(bar: Bar, ok: bool) -> None:
    assert record(bar).ok is ok


def test_without_bars_there_is_nothing_to_keep() -> None:
    assert record().ok is None
    assert record().bar is None


def test_one_missed_bar_is_enough() -> None:
    bars = Bar("cpu_ratio_to_raw", "<=", 1.3), Bar("ratio_to_peer", ">=", 3)
    assert record(*bars, cpu_ratio_to_raw=1.2, ratio_to_peer=4).ok is True
    assert record(*bars, cpu_ratio_to_raw=1.4, ratio_to_peer=4).ok is False


def test_what_was_not_measured_is_not_judged() -> None:
    bars = Bar("cpu_ratio_to_raw", "<=", 1.3), Bar("ratio_to_peer", ">=", 3)
    assert record(*bars, cpu_ratio_to_raw=1.2).ok is None
    assert record(*bars, cpu_ratio_to_raw=1.4).ok is False


@pytest.mark.parametrize(("error", "ok"), [(0.04, False), (0.06, None), (math.inf, None)])
def test_a_value_that_may_keep_its_bar_is_not_judged(error: float, ok: bool | None) -> None:
    assert record(Bar("value", "<=", 1.9), error=error).ok is ok
    assert record(Bar("value", "<=", 2), error=error).ok is True


def test_bars_read_as_one_short_text() -> None:
    bars = Bar("ratio_to_raw", ">=", 0.9, "of memcpy"), Bar("value", "<=", 10, "µs")
    assert record(*bars).bar == ">= 0.9 of memcpy, <= 10 µs"


def test_json_has_every_field_and_null_where_it_does_not_apply() -> None:
    written = json.loads(json.dumps(record(ratio_to_raw=0.987654).as_json()))
    assert list(written) == FIELDS
    assert written["ratio_to_raw"] == 0.9877
    assert [name for name in FIELDS if written[name] is None] == [
        "error",
        "cpu_ratio_to_raw",
        "ratio_to_peer",
        *STATIC,
        "bar",
        "ok",
    ]
