"""Whatever the backend behind it does, the caller gets an answer in time and its buffers back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.backends.guard import Guarded
from sgkv.backends.wrapper import Wrapper
from tests.backends.blobs import NAMESPACE, blob, get, key_of, put
from tests.backends.disks import Clock
from tests.backends.test_wrappers_contract import Stubborn

KEY, DATA = key_of(1), blob(5000)
POLICY = BreakerPolicy(consecutive_failures=3, window=100, cooldown_s=1.0)


@pytest.fixture
def cpu() -> Iterator[CpuBackend]:
    backend = CpuBackend(1 << 20)
    assert put(backend, KEY, DATA) is Status.OK
    yield backend
    backend.close()


@pytest.fixture
def faulty(cpu: CpuBackend) -> Iterator[Faulty]:
    backend = Faulty(cpu)
    yield backend
    backend.release()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guarded(faulty: Faulty, clock: Clock) -> Iterator[Guarded]:
    guarded = Guarded(
        faulty,
        contains_deadline=0.2,
        get_deadline=0.2,
        put_deadline=0.2,
        breaker=POLICY,
        max_inflight=2,
        clock=clock,
    )
    yield guarded
    faulty.release()
    guarded.close()


def counters(guarded: Guarded) -> dict[str, int]:
    return guarded.stats().counters


def states(guarded: Guarded) -> dict[str, int]:
    return guarded.stats().states


def test_a_hung_get_is_a_timeout_and_its_buffer_the_callers_again(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.HANG)])
    into = bytearray(5000)
    item = GetItem(KEY, [Part(0, memoryview(into))])
    began = time.monotonic()
    assert guarded.get([item, item]) == [Status.TIMEOUT] * 2
    assert 0.15 < time.monotonic() - began < 5
    faulty.release()
    guarded.close()
    assert into == bytes(5000)


def test_a_hung_put_is_a_timeout_and_never_published(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.HANG)])
    pages = bytearray(blob(5000, 2))
    assert guarded.put([PutItem(key_of(2), [memoryview(pages)])]) == [Status.TIMEOUT]
    pages[:] = bytes(5000)
    faulty.release()
    assert guarded._pool.close(10)
    assert faulty.inner.contains([key_of(2)]) == [False]


def test_a_hung_lookup_is_a_miss_and_says_why(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.HANG)])
    assert guarded.probe([KEY, KEY]) == ([False, False], Status.TIMEOUT)


def test_a_backend_that_ignores_deadlines_writes_into_stand_ins(cpu: CpuBackend) -> None:
    faulty = Faulty(cpu)
    guarded = Guarded(Stubborn(faulty), get_deadline=0.2, put_deadline=0.2)
    faulty.set_rules([FaultRule(Fault.HANG)])
    into, pages = bytearray(5000), bytearray(blob(100))
    assert guarded.get([GetItem(KEY, [Part(0, memoryview(into))])]) == [Status.TIMEOUT]
    assert guarded.put([PutItem(key_of(2), [memoryview(pages)])]) == [Status.TIMEOUT]
    pages[:] = bytes(100)
    faulty.release()
    assert guarded._pool.close(10)
    assert into == bytes(5000)
    assert cpu.contains([key_of(2)]) == [False]
    guarded.close()


def test_stand_ins_are_checked_where_they_land(cpu: CpuBackend) -> None:
    guarded = Guarded(Stubborn(cpu))
    into = bytearray(5000)
    parts = [Part(0, memoryview(into))]
    assert guarded.get([GetItem(KEY, parts, lambda: into == DATA)]) == [Status.OK]
    assert guarded.get([GetItem(KEY, parts, lambda: False)]) == [Status.CORRUPT]
    guarded.close()


def test_the_nearer_deadline_holds(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.HANG)])
    began = time.monotonic()
    assert get(guarded, KEY, 10, Deadline(60.0)) is Status.TIMEOUT
    assert time.monotonic() - began < 5
    assert get(guarded, KEY, 10, Deadline(0.01)) is Status.TIMEOUT


def test_giving_up_ends_the_callers_deadline_too(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.HANG)])
    into, deadline = bytearray(5000), Deadline(60.0)
    assert guarded.get([GetItem(KEY, [Part(0, memoryview(into))])], deadline) == [Status.TIMEOUT]
    assert deadline.over
    faulty.release()
    guarded.close()
    assert into == bytes(5000)


def test_with_all_threads_hung_the_answer_comes_at_once(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.HANG)])
    for _ in range(2):
        guarded.contains([KEY])
    began = time.monotonic()
    assert get(guarded, KEY, 10) is Status.TIMEOUT
    assert put(guarded, key_of(2), b"x") is Status.TIMEOUT
    assert time.monotonic() - began < 0.15
    assert counters(guarded)["guard_saturated"] == 2
    assert counters(guarded)["breaker_opened"] == 0, "being busy is no evidence against the backend"


def test_an_exception_is_an_error_and_is_logged_once(
    guarded: Guarded, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    faulty.set_rules([FaultRule(Fault.RAISE, times=2)])
    with caplog.at_level(logging.WARNING):
        assert get(guarded, KEY, 10) is Status.ERROR
        assert get(guarded, KEY, 10) is Status.ERROR
    assert len([record for record in caplog.records if "get raised" in record.message]) == 1
    assert get(guarded, KEY, 5000) == DATA
    assert counters(guarded)["guard_errors"] == 2


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.STATUS])
def test_failures_open_the_breaker_and_a_trial_closes_it(
    guarded: Guarded, faulty: Faulty, clock: Clock, fault: Fault
) -> None:
    faulty.set_rules([FaultRule(fault)])
    assert [get(guarded, KEY, 10) for _ in range(3)] == [Status.ERROR] * 3
    faulty.set_rules([])
    assert get(guarded, KEY, 10) is Status.BREAKER_OPEN
    assert guarded.probe([KEY]) == ([False], Status.BREAKER_OPEN)
    assert states(guarded)["read_breaker"] == 2
    assert counters(guarded)["guard_refused"] == 2
    clock.now += 1.0
    assert get(guarded, KEY, 5000) == DATA
    assert states(guarded)["read_breaker"] == 0


class Unanswered(Wrapper):
    """A remote backend that has to say of its lookups that they could not be made."""

    def probe(self, keys: Sequence[str], deadline: Deadline | None = None) -> tuple[list[bool], Status]:
        return [False] * len(keys), Status.ERROR


def test_lookups_without_an_answer_open_the_breaker(cpu: CpuBackend, clock: Clock) -> None:
    guarded = Guarded(Unanswered(cpu), breaker=POLICY, clock=clock)
    said = [guarded.probe([KEY])[1] for _ in range(4)]
    assert said == [Status.ERROR] * 3 + [Status.BREAKER_OPEN]


def test_data_conditions_are_no_failures(guarded: Guarded) -> None:
    for _ in range(5):
        assert get(guarded, key_of(9), 10) is Status.ABSENT
        assert get(guarded, KEY, 5001) is Status.SHORT
        assert put(guarded, key_of(2), bytes(2 << 20)) is Status.FULL
    assert states(guarded)["read_breaker"] == 0


def test_one_bad_item_of_many_is_no_failure(guarded: Guarded, cpu: CpuBackend) -> None:
    def prepare() -> None:
        raise OSError("no pages")

    for turn in range(5):
        bad = PutItem(key_of(100), [memoryview(b"x")], prepare)
        good = [PutItem(key_of(200 + 10 * turn + n), [memoryview(b"x")]) for n in range(3)]
        assert guarded.put([bad, *good]) == [Status.ERROR, *[Status.OK] * 3]
    assert states(guarded)["read_breaker"] == 0


def test_an_impatient_caller_proves_nothing(faulty: Faulty) -> None:
    guarded = Guarded(faulty, get_deadline=60.0, breaker=POLICY, max_inflight=8)
    faulty.set_rules([FaultRule(Fault.HANG)])
    for _ in range(4):
        assert get(guarded, KEY, 10, Deadline(0.02)) is Status.TIMEOUT
    assert states(guarded)["read_breaker"] == 0
    faulty.release()
    guarded.close()


def test_calls_that_cannot_be_made_leave_things_as_they_are(guarded: Guarded, faulty: Faulty) -> None:
    faulty.set_rules([FaultRule(Fault.RAISE, ops=frozenset({"delete"}))])
    assert guarded.delete([KEY]) == [False]
    assert guarded.delete_prefix(f"{NAMESPACE}/") is False
    assert guarded.contains([KEY]) == [True]
    faulty.set_rules([])
    assert guarded.delete_prefix(f"{NAMESPACE}/") is True
    assert guarded.contains([KEY]) == [False]


def test_a_backend_that_takes_nothing_any_more_can_still_be_read(
    guarded: Guarded, faulty: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that turned read-only: its breaker for writes opens, and says so once."""
    faulty.set_rules([FaultRule(Fault.STATUS, frozenset({"put"}))])
    with caplog.at_level(logging.WARNING):
        assert [put(guarded, key_of(2), b"x") for _ in range(4)] == [Status.ERROR] * 3 + [Status.BREAKER_OPEN]
    assert get(guarded, KEY, 5000) == DATA
    assert (states(guarded)["read_breaker"], states(guarded)["write_breaker"]) == (0, 2)
    assert ["writes keep failing" in record.message for record in caplog.records] == [True]


def test_close_does_not_wait_for_a_hung_backend(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgkv.backends.guard._CLOSE_SECONDS", 0.2)
    guarded = Guarded(faulty, get_deadline=0.05)
    faulty.set_rules([FaultRule(Fault.HANG)])
    assert get(guarded, KEY, 10) is Status.TIMEOUT
    began = time.monotonic()
    guarded.close()
    assert time.monotonic() - began < 5
    assert get(guarded, KEY, 10) is Status.CLOSED


@contextmanager
def no_threads() -> Iterator[None]:
    """None can start, because its stack would be larger than memory."""
    before = threading.stack_size(1 << 46)
    yield
    threading.stack_size(before)


def test_without_a_thread_it_is_busy_and_recovers(guarded: Guarded) -> None:
    with no_threads():
        assert get(guarded, KEY, 10) is Status.TIMEOUT
    assert counters(guarded)["guard_saturated"] == 1
    assert get(guarded, KEY, 5000) == DATA


def test_close_closes_the_backend_also_without_a_thread(cpu: CpuBackend) -> None:
    """At the end of a process: Python 3.12 starts none any more when SGLang detaches."""
    guarded = Guarded(cpu)
    with no_threads():
        guarded.close()
    assert get(cpu, KEY, 10) is Status.CLOSED


def test_it_offers_what_the_backend_offers_and_can_be_abandoned(cpu: CpuBackend) -> None:
    stubborn = Stubborn(cpu)
    assert Guarded(stubborn).capabilities == replace(stubborn.capabilities, abandonable=True)
