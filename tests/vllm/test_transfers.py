"""Every job ends with one outcome, whatever happens to it: vLLM keeps rows pinned for those that do not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sgkv.counters import Counters
from sgkv.vllm.transfers import Outcome, Transfers

LIMIT = 100
SECONDS = 20.0


@pytest.fixture
def transfers() -> Iterator[Transfers]:
    made = Transfers(Counters(), LIMIT)
    yield made
    assert made.close(SECONDS)


def store(number: int) -> Outcome:
    return Outcome(number, [b"key"], is_load=False)


def move_all(outcome: Outcome) -> None:
    outcome.done.extend(outcome.keys)


def ids(transfers: Transfers) -> list[int]:
    assert transfers.wait(SECONDS)
    return sorted(outcome.job_id for outcome in transfers.outcomes())


def test_a_job_that_fails_has_moved_nothing(transfers: Transfers) -> None:
    def fail(_outcome: Outcome) -> None:
        raise OSError("gone")

    transfers.submit(store(1), 10, fail)
    transfers.submit(store(2), 10, move_all)
    assert transfers.wait(SECONDS)
    moved = {outcome.job_id: outcome.done for outcome in transfers.outcomes()}
    assert moved == {1: [], 2: [b"key"]}
    assert transfers.outcomes() == []


def test_stores_beyond_the_limit_end_at_once_and_loads_do_not_wait_for_them(transfers: Transfers) -> None:
    go = threading.Event()

    def held(outcome: Outcome) -> None:
        assert go.wait(SECONDS)
        move_all(outcome)

    transfers.submit(store(1), 2 * LIMIT, held)  # one job may be larger than the limit
    transfers.submit(store(2), 1, move_all)
    assert [(outcome.job_id, outcome.done) for outcome in transfers.outcomes()] == [(2, [])]
    loaded = threading.Event()

    def load(outcome: Outcome) -> None:
        move_all(outcome)
        loaded.set()

    transfers.submit(Outcome(3, [b"key"], is_load=True), 10, load)
    assert loaded.wait(SECONDS)
    go.set()
    assert ids(transfers) == [1, 3]


def test_a_drain_ends_jobs_that_have_not_begun(transfers: Transfers) -> None:
    go, begun = threading.Event(), threading.Semaphore(0)

    def held(outcome: Outcome) -> None:
        begun.release()
        assert go.wait(SECONDS)
        move_all(outcome)

    for number in range(20):
        transfers.submit(store(number), 1, held)
    assert begun.acquire(timeout=SECONDS)
    threading.Timer(0.1, go.set).start()
    assert transfers.drain(SECONDS)
    outcomes = transfers.outcomes()
    assert len(outcomes) == 20
    assert 0 < sum(bool(outcome.done) for outcome in outcomes) < 20


def test_the_parts_of_a_job_are_all_moved(transfers: Transfers) -> None:
    def move(outcome: Outcome) -> None:
        transfers.spread(outcome, 50, lambda part: outcome.done.append(bytes([part])))

    transfers.submit(Outcome(1, [bytes([part]) for part in range(50)], is_load=True), 10, move)
    assert transfers.wait(SECONDS)
    assert sorted(transfers.outcomes()[0].done) == [bytes([part]) for part in range(50)]


def test_after_closing_a_job_ends_with_nothing_moved() -> None:
    transfers = Transfers(Counters(), LIMIT)
    assert transfers.close(SECONDS)
    transfers.submit(store(1), 1, move_all)
    assert [outcome.done for outcome in transfers.outcomes()] == [[]]
