"""Bandwidth, retries, patience, the end of a run."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgkv.prewarm.outcomes import Ended
from sgkv.prewarm.pace import Bandwidth, Control
from sgkv.testing.waiting import wait_until


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestBandwidth:
    @given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 3)), min_size=1, max_size=40))
    def test_no_stretch_of_time_moves_more_than_its_share(self, claims):
        """Whatever is claimed whenever: a second's worth of idling may be made up for, and no more."""
        clock, rate = Clock(), 100.0
        bandwidth = Bandwidth(rate, clock)
        moved: list[tuple[float, int]] = []
        for size, idle in claims:
            clock.now += idle
            clock.now += bandwidth.claim(size)
            moved.append((clock.now, size))
        for first, (began, _) in enumerate(moved):
            size = 0
            for ended, more in moved[first:]:
                assert size <= rate * (ended - began + 1.0) + 1e-6
                size += more

    def test_claims_queue_behind_each_other(self):
        bandwidth = Bandwidth(100, Clock())
        assert [bandwidth.claim(50) for _ in range(3)] == [0.0, 0.5, 1.0]

    @pytest.mark.parametrize("rate", [0, -1])
    def test_is_positive(self, rate):
        with pytest.raises(ValueError, match="positive"):
            Bandwidth(rate)


class TestAttempts:
    def test_end_with_their_number(self):
        control = Control(attempts=1)
        assert [attempt.number for attempt in control.attempts()] == [0]
        assert not control.stopped

    def test_pauses_grow_and_are_at_most_half_a_minute(self):
        waits = []
        control = Control(attempts=12)
        control.wait = lambda seconds: waits.append(seconds) or True
        assert len(list(control.attempts())) == 12
        assert len(waits) == control.retries == 11
        assert 0.25 <= waits[0] <= 0.5
        assert 15 <= waits[-1] <= 30

    def test_the_one_who_tries_may_ask_for_a_longer_pause(self):
        waits = []
        control = Control(attempts=2)
        control.wait = lambda seconds: waits.append(seconds) or True
        for attempt in control.attempts():
            attempt.pause = 77.0
        assert waits == [77.0]

    def test_none_begins_after_the_end(self):
        control = Control()
        control.stop(Ended.INTERRUPTED)
        assert list(control.attempts()) == []
        assert not control.admit(1)

    def test_a_stop_ends_the_pause(self):
        control = Control(bandwidth=Bandwidth(1))
        control.admit(3600)
        waiting = threading.Thread(target=control.admit, args=(1,))
        waiting.start()
        control.stop(Ended.INTERRUPTED)
        waiting.join(10)
        assert not waiting.is_alive()


class TestGivingUp:
    def test_after_failing_for_longer_than_patience_allows(self):
        clock = Clock()
        control = Control(patience=60, attempts=10, clock=clock)
        control.wait = lambda seconds: not control.stopped
        for attempt in control.attempts():
            clock.now += 25
            last = attempt.number
        assert last == 3
        assert control.ended is Ended.GAVE_UP

    def test_time_counts_from_the_first_failure_after_a_success(self):
        clock = Clock()
        control = Control(patience=60, attempts=2, clock=clock)
        control.wait = lambda seconds: not control.stopped
        for _ in range(10):
            clock.now += 50  # a large blob takes its time
            next(iter(control.attempts()))
            list(control.attempts())
            control.succeeded()
        assert not control.stopped

    def test_after_twenty_failures_in_a_row(self):
        control = Control()
        for _ in range(19):
            control.failed()
        control.succeeded()
        for _ in range(19):
            control.failed()
        assert not control.stopped
        control.failed()
        assert control.ended is Ended.GAVE_UP

    def test_the_first_reason_counts(self):
        control = Control()
        control.stop(Ended.INTERRUPTED)
        control.stop(Ended.GAVE_UP)
        assert control.ended is Ended.INTERRUPTED


def test_waiting_for_bandwidth_takes_no_processor_time():
    """One wait each: the clock is read once a claim."""
    reads = []
    clock = Clock()

    def counted() -> float:
        reads.append(1)
        return clock()

    control = Control(bandwidth=Bandwidth(10, counted))
    control.admit(1)
    reads.clear()
    thread = threading.Thread(target=control.admit, args=(1000,))
    thread.start()
    wait_until(lambda: reads, "the claim")
    control.stop(Ended.INTERRUPTED)
    thread.join(10)
    assert len(reads) == 1
