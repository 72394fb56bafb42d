"""What metrics, faults and the slow link do, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from sgkv.backends.base import GetItem, Part, Status
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.faulty import Fault, FaultRule, Faulty, InjectedError
from sgkv.backends.metered import Metered
from sgkv.backends.simulated import Simulated
from tests.backends.blobs import blob, get, key_of, put, put_item
from tests.backends.disks import Clock

KEY, DATA = key_of(1), blob(5000)


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float, dict[Status, int], int]] = []

    def observe(self, op: str, seconds: float, outcomes: Mapping[Status, int], moved: int) -> None:
        self.calls.append((op, seconds, dict(outcomes), moved))


class Ticking(Clock):
    """Every reading is half a second after the one before."""

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


@pytest.fixture
def cpu() -> Iterator[CpuBackend]:
    backend = CpuBackend(1 << 20)
    put(backend, KEY, DATA)
    yield backend
    backend.close()


def test_metered_tells_operation_time_outcomes_and_bytes(cpu: CpuBackend) -> None:
    recorder = Recorder()
    metered = Metered(cpu, recorder, Ticking())
    metered.put([put_item(key_of(2), bytes(100)), put_item(KEY, DATA), put_item(key_of(3), bytes(2 << 20))])
    into = memoryview(bytearray(5000))
    metered.get([GetItem(KEY, [Part(0, into[:30]), Part(40, into[40:50])]), GetItem("none", [Part(0, into)])])
    metered.contains([KEY, "none", "none"])
    metered.delete([KEY])
    assert recorder.calls == [
        ("put", 0.5, {Status.OK: 1, Status.EXISTS: 1, Status.FULL: 1}, 100),
        ("get", 0.5, {Status.OK: 1, Status.ABSENT: 1}, 40),
        ("contains", 0.5, {Status.OK: 1, Status.ABSENT: 2}, 0),
        ("delete", 0.5, {Status.OK: 1}, 0),
    ]


def test_metered_tells_why_a_lookup_was_not_answered(cpu: CpuBackend) -> None:
    recorder = Recorder()
    metered = Metered(Faulty(cpu, [FaultRule(Fault.STATUS, status=Status.TIMEOUT)]), recorder)
    assert metered.contains([KEY, KEY]) == [False, False]
    assert recorder.calls[0][2] == {Status.TIMEOUT: 2}


def test_a_script_of_faults(cpu: CpuBackend) -> None:
    gets = frozenset({"get"})
    faulty = Faulty(
        cpu,
        [
            FaultRule(Fault.RAISE, ops=gets, skip=1, times=1),
            FaultRule(Fault.STATUS, ops=gets, skip=1, times=2, status=Status.TIMEOUT),
        ],
    )
    assert get(faulty, KEY, 5000) == DATA
    with pytest.raises(InjectedError, match="get"):
        get(faulty, KEY, 5000)
    assert [get(faulty, KEY, 5000) for _ in range(3)] == [Status.TIMEOUT, Status.TIMEOUT, DATA]
    assert faulty.contains([KEY]) == [True]


def test_a_chance_of_faults_is_the_same_for_the_same_seed(cpu: CpuBackend) -> None:
    def outcomes(seed: int) -> list[bool]:
        faulty = Faulty(cpu, [FaultRule(Fault.STATUS, probability=0.3)], seed=seed)
        return [get(faulty, KEY, 5000) is Status.ERROR for _ in range(200)]

    assert outcomes(1) == outcomes(1) != outcomes(2)
    assert 30 < sum(outcomes(1)) < 90


def test_flipped_bits_are_what_a_check_is_for(cpu: CpuBackend) -> None:
    faulty = Faulty(cpu, [FaultRule(Fault.FLIP)])
    found = get(faulty, KEY, 5000)
    assert isinstance(found, bytes)
    assert sum((one ^ two).bit_count() for one, two in zip(found, DATA, strict=True)) == 1
    into = bytearray(5000)
    item = GetItem(KEY, [Part(0, memoryview(into))], lambda: into == DATA)
    assert faulty.get([item]) == [Status.CORRUPT]


def test_short_and_lost(cpu: CpuBackend) -> None:
    faulty = Faulty(cpu, [FaultRule(Fault.SHORT, ops=frozenset({"get"}))])
    assert get(faulty, KEY, 5000) is Status.SHORT
    assert get(faulty, key_of(2), 1) is Status.ABSENT
    faulty.set_rules([FaultRule(Fault.LOSE, ops=frozenset({"put"}))])
    assert put(faulty, key_of(2), b"lost") is Status.OK
    assert faulty.contains([key_of(2)]) == [False]


def test_failed_lookups_and_deletions_answer_false(cpu: CpuBackend) -> None:
    faulty = Faulty(cpu, [FaultRule(Fault.STATUS)])
    assert faulty.probe([KEY]) == ([False], Status.ERROR)
    assert faulty.delete([KEY]) == [False]
    assert put(faulty, key_of(2), b"x") is Status.ERROR
    assert cpu.contains([KEY, key_of(2)]) == [True, False]


class Link:
    """Time in which only sleeping passes."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.clock.now += seconds


@pytest.fixture
def link() -> Link:
    return Link()


def test_a_call_takes_latency_and_the_time_of_its_bytes(cpu: CpuBackend, link: Link) -> None:
    far = Simulated(cpu, latency_s=0.1, bandwidth_bytes_s=10_000, clock=link.clock, sleep=link.sleep)
    assert get(far, KEY, 5000) == DATA
    assert put(far, key_of(2), bytes(1000)) is Status.OK
    assert far.contains([KEY]) == [True]
    assert far.delete([KEY]) == [True]
    assert link.slept == [0.6, 0.2, 0.1, 0.1]


def test_bytes_queue_behind_those_of_other_calls(cpu: CpuBackend) -> None:
    slept: list[float] = []
    far = Simulated(cpu, bandwidth_bytes_s=10_000, clock=Clock(), sleep=slept.append)
    for _ in range(3):
        get(far, KEY, 5000)
    assert slept == [0.5, 1.0, 1.5]


def test_a_deadline_ends_the_wait_and_nothing_is_asked(cpu: CpuBackend, link: Link) -> None:
    far = Simulated(cpu, latency_s=1.0, clock=link.clock, sleep=link.sleep)
    assert get(far, KEY, 5000, Deadline(0.25, link.clock)) is Status.TIMEOUT
    assert put(far, key_of(2), b"x", Deadline(0.5, link.clock)) is Status.TIMEOUT
    assert link.slept == [0.25, 0.5]
    assert cpu.contains([key_of(2)]) == [False]
    assert get(far, KEY, 5000, Deadline(2.0, link.clock)) == DATA


def test_jitter_is_seeded_and_bounded(cpu: CpuBackend) -> None:
    def delays(seed: int) -> list[float]:
        slept: list[float] = []
        far = Simulated(cpu, latency_s=1.0, jitter_s=0.5, seed=seed, clock=Clock(), sleep=slept.append)
        for _ in range(50):
            far.contains([KEY])
        return slept

    assert delays(1) == delays(1) != delays(2)
    assert all(1.0 <= delay <= 1.5 for delay in delays(1))
    assert Counter(delay > 1.25 for delay in delays(1))[True] > 10
