"""How costs are taken and compared."""

from __future__ import annotations

import gc
import time
from itertools import pairwise, permutations

from hypothesis import given
from hypothesis import strategies as st

from sgkv.bench.timing import Cost, Series, in_turn, interleave, rotated, settled_heap

seconds = st.floats(min_value=1e-6, max_value=1e3)
costs = st.lists(st.builds(Cost, seconds, seconds), min_size=1, max_size=20)


@given(costs)
def test_a_series_is_as_fast_as_itself(series: list[Cost]) -> None:
    ours = Series(series)
    assert ours.speed_over(ours) == 1
    assert ours.cpu_over(ours) == 1
    assert ours.wall_beyond(ours) == 0


@given(costs)
def test_twice_the_time_is_half_the_speed(series: list[Cost]) -> None:
    fast, slow = Series(series), Series([Cost(2 * wall, 2 * cpu) for wall, cpu in series])
    assert fast.speed_over(slow) == 2
    assert slow.cpu_over(fast) == 2


def test_interruptions_do_not_decide_a_comparison() -> None:
    calm, disturbed = Series([Cost(1, 1)] * 8), Series([Cost(1, 1)] * 4 + [Cost(50, 1)] * 4)
    assert calm.speed_over(disturbed) == 1


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []
    series = interleave({name: lambda name=name: turns.append(name) for name in "ab"}, rounds=2)
    assert turns == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(one.costs) for name, one in series.items()} == {"a": 2, "b": 2}


def test_who_follows_whom_changes() -> None:
    rounds = [in_turn("abc", at) for at in range(6)]
    assert {turn[0] for turn in rounds[:3]} == set("abc")
    assert sorted(map(sorted, rounds)) == [list("abc")] * 6
    followers = {(before, after) for turn in rounds for before, after in pairwise(turn)}
    assert followers == set(permutations("abc", 2))


def test_preparing_is_not_timed() -> None:
    prepared: list[str] = []
    series = interleave({"a": lambda: None}, 3, lambda name: time.sleep(0.02) or prepared.append(name))
    assert prepared == ["a"] * 4
    assert series["a"].wall < 0.01


@given(st.lists(st.integers(), min_size=1), st.integers(min_value=0, max_value=50))
def test_rotation_keeps_order_and_items(items: list[int], by: int) -> None:
    turned = rotated(items, by)
    assert turned[0] == items[by % len(items)]
    assert rotated(turned, len(items) - by % len(items)) == items


def test_the_collector_sees_nothing_older_inside_and_everything_after() -> None:
    before = gc.get_freeze_count()
    with settled_heap():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
