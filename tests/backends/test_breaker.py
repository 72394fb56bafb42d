"""When the breaker opens, for how long, and how it closes."""

from __future__ import annotations

import pytest

from sgkv.backends.breaker import Breaker, BreakerPolicy, BreakerState
from tests.backends.disks import Clock

POLICY = BreakerPolicy(
    consecutive_failures=3, failure_share=0.5, window=8, cooldown_s=1.0, max_cooldown_s=4.0
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(POLICY, clock)


def state_of(breaker: Breaker) -> BreakerState:
    return breaker.state


def call(breaker: Breaker, succeeded: bool) -> bool:
    """One call through the breaker; False where it was refused."""
    ticket = breaker.admit()
    if ticket is None:
        return False
    breaker.record(ticket, succeeded)
    return True


def open_up(breaker: Breaker) -> None:
    for _ in range(POLICY.consecutive_failures):
        assert call(breaker, False)
    assert state_of(breaker) is BreakerState.OPEN


def test_failures_in_a_row_open_it(breaker: Breaker) -> None:
    for succeeded in (False, False, True, False, False):
        call(breaker, succeeded)
    assert state_of(breaker) is BreakerState.CLOSED
    call(breaker, False)
    assert state_of(breaker) is BreakerState.OPEN
    assert not call(breaker, True)


def test_a_share_of_failures_opens_it(breaker: Breaker) -> None:
    for turn in range(POLICY.window):
        assert call(breaker, turn % 2 == 0)
    assert state_of(breaker) is BreakerState.OPEN


def test_after_the_cooldown_one_call_is_on_trial(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += 0.9
    assert breaker.admit() is None
    clock.now += 0.1
    ticket = breaker.admit()
    assert ticket is not None
    assert state_of(breaker) is BreakerState.HALF_OPEN
    assert breaker.admit() is None
    breaker.record(ticket, True)
    assert state_of(breaker) is BreakerState.CLOSED
    assert call(breaker, True)


def test_failed_trials_double_the_cooldown_up_to_a_cap(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    for cooldown in (1.0, 2.0, 4.0, 4.0):
        clock.now += cooldown - 0.01
        assert not call(breaker, False)
        clock.now += 0.01
        assert call(breaker, False)
    clock.now += 4.0
    assert call(breaker, True)
    open_up(breaker)
    clock.now += 1.0
    assert call(breaker, True), "a success makes the next cool-down short again"


def test_a_trial_that_told_nothing_is_put_off(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += 1.0
    ticket = breaker.admit()
    assert ticket is not None
    breaker.skip(ticket)
    assert breaker.admit() is None
    clock.now += 1.0
    assert call(breaker, True)
    assert state_of(breaker) is BreakerState.CLOSED


def test_answers_to_calls_of_an_earlier_state_count_for_nothing(breaker: Breaker, clock: Clock) -> None:
    stale = breaker.admit()
    assert stale is not None
    open_up(breaker)
    clock.now += 1.0
    trial = breaker.admit()
    assert trial is not None
    breaker.record(stale, True)
    breaker.skip(stale)
    assert state_of(breaker) is BreakerState.HALF_OPEN
    breaker.record(trial, False)
    breaker.record(stale, True)
    assert state_of(breaker) is BreakerState.OPEN
    assert breaker.opened == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"consecutive_failures": 0},
        {"window": 0},
        {"failure_share": 0.0},
        {"failure_share": 1.1},
        {"cooldown_s": 0.0},
        {"cooldown_s": 90.0},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        BreakerPolicy(**wrong)  # type: ignore[arg-type]
