"""Sizes, durations and shares: what may be written, and that writing them back loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.config.units import (
    Percent,
    approximate_size,
    format_capacity,
    format_duration,
    format_size,
    parse_capacity,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (4096, 4096),
        (4096.0, 4096),
        ("4096", 4096),
        ("8GiB", 8 << 30),
        ("8 gib", 8 << 30),
        ("500MB", 500_000_000),
        ("1.5KiB", 1536),
        (".5 KB", 500),
        ("7B", 7),
    ],
)
def test_sizes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (2, 2.0),
        (0.5, 0.5),
        ("3", 3.0),
        ("250ms", 0.25),
        ("40us", 4e-5),
        ("2s", 2.0),
        ("1.5h", 5400.0),
        ("7d", 604800.0),
    ],
)
def test_durations(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "written", [True, None, "", "GiB", "-1", -1, 1.5, "8G", "8Gib/s", "1e9", float("inf"), [1]]
)
def test_what_is_no_size(written: object) -> None:
    with pytest.raises(ValueError):
        parse_size(written)


@pytest.mark.parametrize(
    "written", [True, None, "", "s", -0.1, "-2s", "2 weeks", float("nan"), "9" * 400, {}]
)
def test_what_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(written)


@pytest.mark.parametrize("written", ["0%", "101%", "%", "ten%", "-5%"])
def test_what_is_no_share(written: str) -> None:
    with pytest.raises(ValueError):
        parse_capacity(written)


def test_a_unit_that_could_mean_two_things_is_answered_with_both() -> None:
    with pytest.raises(ValueError, match=r"write B, KB, .*KiB.*e\.g\. 8GiB"):
        parse_size("8G")


def test_a_capacity_is_a_size_a_share_or_auto() -> None:
    assert parse_capacity("Auto") == "auto"
    assert parse_capacity("12.5 %") == Percent(12.5)
    assert parse_capacity("1MiB") == 1 << 20
    assert Percent(12.5).of(1000) == 125


@given(st.integers(0, 1 << 62))
def test_a_size_survives_being_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.floats(0, 1e9))
def test_a_duration_survives_being_written(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(0.001, 100).map(lambda value: Percent(float(f"{value:g}"))))
def test_a_share_survives_being_written(share: Percent) -> None:
    assert parse_capacity(format_capacity(share)) == share


def test_written_forms_are_the_ones_a_person_would_choose() -> None:
    assert [format_size(n) for n in (0, 1000, 1024, 3 << 29)] == [0, 1000, "1KiB", "1536MiB"]
    assert [format_duration(s) for s in (0.0, 0.05, 90.0, 604800.0)] == [0.0, "50ms", "1.5m", "7d"]
    assert [approximate_size(n) for n in (12, 1500, 5 << 30)] == ["12 bytes", "1.465 KiB", "5 GiB"]
