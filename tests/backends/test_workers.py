"""The pool is bounded, the batch helpers wait for exactly what they must, a deadline means it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.gate import Gate
from sgkv.backends.workers import WorkerPool, spread, spread_until


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(2, "test", backlog=1)
    yield pool
    pool.close(5)


def waiting(event: threading.Event, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """A task that waits for `event`."""

    def task() -> None:
        assert event.wait(20)
        then()

    return task


def test_it_takes_what_threads_and_backlog_hold_and_no_more(pool: WorkerPool, go_on: threading.Event) -> None:
    futures = [pool.submit(waiting(go_on)) for _ in range(5)]
    assert [future is not None for future in futures] == [True, True, True, False, False]
    go_on.set()
    for future in futures:
        if future is not None:
            future.result(10)
    assert pool.submit(lambda: None) is not None


def test_without_backlog_a_caller_can_come_again_at_once() -> None:
    pool = WorkerPool(1, "test", backlog=0)
    for _ in range(500):
        future = pool.submit(lambda: None)
        assert future is not None
        future.result(10)
    pool.close(5)


def test_threads_start_only_when_needed(pool: WorkerPool) -> None:
    for _ in range(10):
        future = pool.submit(lambda: None)
        assert future is not None
        future.result(10)
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("test-")]) == 1


@pytest.fixture
def no_threads() -> Iterator[Callable[[], None]]:
    """No thread can start, because its stack would be larger than memory; calling it ends that."""
    before = threading.stack_size(1 << 46)
    yield lambda: threading.stack_size(before) and None
    threading.stack_size(before)


def test_where_no_thread_can_be_had_work_is_refused_and_nothing_is_lost_by_it(
    no_threads: Callable[[], None],
) -> None:
    pool, done = WorkerPool(1, "test-none", backlog=1), threading.Event()
    assert [pool.submit(done.set) for _ in range(3)] == [None] * 3
    assert not spread_until(pool, 1, lambda _: done.set(), 1, Deadline(10))
    spread(pool, 2, lambda _: None, 1)
    no_threads()
    assert pool.submit(done.set) is not None
    assert done.wait(10)
    assert pool.close(10)


def test_close_finishes_what_was_accepted_and_refuses_more(pool: WorkerPool, go_on: threading.Event) -> None:
    done: list[int] = []
    for number in range(3):
        pool.submit(waiting(go_on, partial(done.append, number)))
    assert not pool.close(0.05)
    assert pool.submit(lambda: None) is None
    go_on.set()
    assert pool.close(10)
    assert sorted(done) == [0, 1, 2]


def test_spread_does_every_item_once(pool: WorkerPool) -> None:
    done: list[int] = []
    spread(pool, 100, done.append, 2)
    assert sorted(done) == list(range(100))
    spread(pool, 0, done.append, 2)
    assert len(done) == 100


def test_spread_hands_an_exception_on(pool: WorkerPool) -> None:
    def work(at: int) -> None:
        raise KeyError(at)

    with pytest.raises(KeyError):
        spread(pool, 10, work, 2)


def test_spread_needs_no_thread_of_a_hung_pool(pool: WorkerPool, go_on: threading.Event) -> None:
    for _ in range(3):
        pool.submit(waiting(go_on))
    done: list[int] = []
    spread(pool, 10, done.append, 2)
    assert sorted(done) == list(range(10))


def test_spread_until_stops_waiting_and_starts_nothing_more(pool: WorkerPool, go_on: threading.Event) -> None:
    began: list[int] = []

    def work(at: int) -> None:
        began.append(at)
        assert go_on.wait(20)

    deadline = Deadline(0.1)
    assert not spread_until(pool, 10, work, 2, deadline)
    assert deadline.over
    go_on.set()
    assert pool.close(10)
    assert sorted(began) == [0, 1]


def test_spread_until_without_a_thread_gives_up_at_once(pool: WorkerPool, go_on: threading.Event) -> None:
    for _ in range(3):
        pool.submit(waiting(go_on))
    deadline = Deadline(60.0)
    began = time.monotonic()
    assert not spread_until(pool, 10, lambda at: None, 2, deadline)
    assert time.monotonic() - began < 5
    assert deadline.over


def test_cancel_waits_for_landings_under_way_and_refuses_later_ones(go_on: threading.Event) -> None:
    deadline, landed = Deadline(None), threading.Event()
    order: list[str] = []

    def land() -> None:
        with deadline.landing() as admitted:
            assert admitted
            landed.set()
            go_on.wait(20)
            order.append("landed")

    def cancel() -> None:
        deadline.cancel()
        order.append("cancelled")

    threads = [threading.Thread(target=land), threading.Thread(target=cancel)]
    threads[0].start()
    assert landed.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == ["landed", "cancelled"]
    with deadline.landing() as admitted:
        assert not admitted


def test_landing_is_refused_once_expired_and_free_without_a_deadline() -> None:
    with landing(Deadline(0.0)) as admitted:
        assert not admitted
    with landing(Deadline(60.0)) as admitted:
        assert admitted
    with landing(None) as admitted:
        assert admitted


def test_a_gate_waits_for_who_is_inside() -> None:
    gate = Gate()
    with gate.passing() as admitted:
        assert admitted
        assert not gate.close(0.01)
        with gate.passing() as late:
            assert not late
    assert gate.close(5)
    assert gate.closed
