"""Tiers that fail, hang or fill up: bounded calls, right answers, counted reasons, nothing leaked."""

import threading
import time

import pytest

from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.backends.guard import Guarded
from sgkv.reasons import MissReason
from sgkv.store.span import Span
from tests.store.conftest import (
    PAGE_BYTES,
    blank_pages,
    chain,
    found_in,
    joined,
    layout,
    namespace,
    put,
    random_pages,
    read,
)  # fmt: skip

NEVER = BreakerPolicy(consecutive_failures=10_000, failure_share=1.0, window=10_000)


class Trouble:
    """A disk tier that misbehaves on demand, behind the guard the store always puts there."""

    def __init__(self, breaker: BreakerPolicy = NEVER, deadline: float = 0.2) -> None:
        self.breaker, self.deadline = breaker, deadline

    def wrap(self, disk):
        self.faulty = Faulty(disk)
        return Guarded(
            self.faulty,
            contains_deadline=self.deadline,
            get_deadline=self.deadline,
            put_deadline=self.deadline,
            breaker=self.breaker,
        )

    def now(self, fault: Fault, *ops: str, **rule) -> None:
        self.faulty.set_rules([FaultRule(fault, frozenset(ops or {"contains", "get", "put"}), **rule)])

    def over(self) -> None:
        self.faulty.set_rules([])
        self.faulty.release()


@pytest.mark.parametrize(
    ("fault", "reason"), [(Fault.RAISE, MissReason.TIER_ERROR), (Fault.STATUS, MissReason.TIER_ERROR)]
)
def test_a_failing_tier_is_a_miss_with_its_reason(disk_rig, fault, reason):
    trouble = Trouble()
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes, pages)
    trouble.now(fault)
    assert read(session, hashes)[0] == [reason] * 4
    assert put(session, chain(4, seed=1), random_pages(4)) == [False] * 4
    trouble.over()
    assert read(session, hashes) == ([None] * 4, joined(pages))


def test_a_lookup_says_when_the_tier_could_not_be_asked(disk_rig):
    trouble = Trouble()
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    put(session, chain(4), random_pages(4))
    trouble.now(Fault.RAISE)
    found = found_in(session, chain(4))
    assert (found.pages, found.reason) == (0, MissReason.TIER_ERROR)


def test_a_hanging_tier_costs_its_deadline_and_never_touches_the_pages_again(disk_rig):
    trouble = Trouble()
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    hashes = chain(4)
    put(session, hashes, random_pages(4))
    trouble.now(Fault.HANG)
    into = blank_pages(4)
    started = time.monotonic()
    reasons = session.get(Span(hashes), into, Deadline(10))
    assert time.monotonic() - started < 2.0
    assert reasons == [MissReason.TIMEOUT] * 4
    marker = b"\x55" * PAGE_BYTES
    for page in into:
        for buffer in page:
            buffer[:] = marker[: len(buffer)]
    trouble.over()
    disk_rig.stores[0].close()
    assert joined(into) == [marker] * 4


def test_the_engines_deadline_binds_when_it_is_nearer(disk_rig):
    trouble = Trouble(deadline=30.0)
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    put(session, chain(4), random_pages(4))
    trouble.now(Fault.HANG)
    started = time.monotonic()
    session.get(Span(chain(4)), blank_pages(4), Deadline(0.1))
    assert time.monotonic() - started < 2.0
    trouble.over()


def test_repeated_failures_open_the_breaker_and_a_probe_closes_it(disk_rig):
    policy = BreakerPolicy(consecutive_failures=2, cooldown_s=0.05, max_cooldown_s=0.05)
    trouble = Trouble(policy)
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes, pages)
    trouble.now(Fault.RAISE)
    for _ in range(3):
        reasons, _ = read(session, hashes)
    assert reasons == [MissReason.BREAKER_OPEN] * 4
    trouble.over()
    until = time.monotonic() + 10
    while read(session, hashes)[0] != [None] * 4:
        assert time.monotonic() < until, "the breaker never closed"
        threading.Event().wait(0.02)


def test_flipped_bits_on_the_way_are_never_served(disk_rig):
    trouble = Trouble()
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    hashes, pages = chain(8), random_pages(8)
    put(session, hashes, pages)
    trouble.now(Fault.FLIP, "get")
    reasons, got = read(session, hashes)
    assert MissReason.CORRUPT in reasons
    assert all(got[i] == joined(pages)[i] for i, reason in enumerate(reasons) if reason is None)


def test_a_hung_lower_tier_does_not_slow_writes_through_the_arena(two_tier_rig):
    trouble = Trouble()
    store = two_tier_rig.store(wrap=trouble.wrap, drain_timeout=0.5)
    session = store.open(namespace(), layout())
    trouble.now(Fault.HANG)
    started = time.monotonic()
    for seed in range(50):
        assert put(session, chain(4, seed), random_pages(4)) == [True] * 4
    assert time.monotonic() - started < 2.0
    assert read(session, chain(4, 7))[0] == [None] * 4
    trouble.over()


def test_write_behind_is_bounded_drops_and_counts(two_tier_rig):
    trouble = Trouble(deadline=30.0)
    store = two_tier_rig.store(wrap=trouble.wrap, write_behind_bytes=8 * PAGE_BYTES, drain_timeout=0.5)
    session = store.open(namespace(), layout())
    trouble.now(Fault.HANG, "put")
    for seed in range(10):
        assert put(session, chain(4, seed), random_pages(4)) == [True] * 4
    assert store.stats().write_behind_bytes <= 8 * PAGE_BYTES
    assert store.counters.get("write_behind_dropped_pages") >= 28
    trouble.over()
    assert store.flush(10)
    assert store.stats().write_behind_bytes == 0
    assert store.stats().tiers["cpu"].leases == 0


def test_close_is_bounded_with_a_hung_tier_and_leaks_no_lease(two_tier_rig):
    trouble = Trouble(deadline=30.0)
    store = two_tier_rig.store(wrap=trouble.wrap, drain_timeout=0.5)
    trouble.now(Fault.HANG)
    put(store.open(namespace(), layout()), chain(7), random_pages(7))
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 8.0
    trouble.over()


def test_a_tail_is_written_after_its_delay(two_tier_rig):
    store = two_tier_rig.store(tail_delay=0.05)
    put(store.open(namespace(), layout()), chain(2), random_pages(2))
    until = time.monotonic() + 10
    while store.stats().tiers["disk"].blobs < 2:
        assert time.monotonic() < until, "the tail was never written"
        threading.Event().wait(0.02)


def test_a_completed_tail_is_written_once_as_a_chunk(two_tier_rig):
    store = two_tier_rig.store()
    session = store.open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes[:2], pages[:2])
    put(session, hashes[2:], pages[2:], before=hashes[:2])
    assert store.flush(10)
    assert store.stats().tiers["disk"].blobs == 1
    assert store.stats().tiers["cpu"].leases == 0


def test_threads_end_with_the_store(two_tier_rig):
    before = set(threading.enumerate())
    store = two_tier_rig.store()
    put(store.open(namespace(), layout()), chain(7), random_pages(7))
    store.close()
    left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("sgkv")]
    assert left == []


def test_readers_writers_and_clear_at_once_serve_no_wrong_byte(two_tier_rig):
    store = two_tier_rig.store(cpu_bytes=64 * 8192, disk_bytes=80 * PAGE_BYTES, tail_delay=0.01)
    session = store.open(namespace(), layout())
    contents = {seed: random_pages(9) for seed in range(12)}
    wrong: list[int] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for seed, pages in contents.items():
                put(session, chain(9, seed), pages)

    def check(start: int) -> None:
        for turn in range(150):
            seed = (start + turn) % 12
            reasons, got = read(session, chain(9, seed))
            expected = joined(contents[seed])
            wrong.extend(i for i, reason in enumerate(reasons) if reason is None and got[i] != expected[i])
            if turn % 50 == 49:
                session.clear()

    writer = threading.Thread(target=write)
    readers = [threading.Thread(target=check, args=(n,)) for n in range(3)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join(60)
    stop.set()
    writer.join(60)
    assert wrong == []
    assert store.flush(10)
    assert store.stats().tiers["cpu"].leases == 0
    assert store.counters.get("internal_errors") == 0


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.STATUS, Fault.HANG])
def test_a_tier_that_cannot_be_cleared_serves_nothing_until_it_could_be(disk_rig, fault):
    trouble = Trouble()
    session = disk_rig.store(wrap=trouble.wrap).open(namespace(), layout())
    hashes, pages = chain(4), random_pages(4)
    put(session, hashes, pages)
    trouble.now(fault, "delete")
    session.clear()
    assert found_in(session, hashes).pages == 0
    assert read(session, hashes)[0] == [MissReason.ABSENT] * 4
    assert put(session, hashes, pages) == [False] * 4
    trouble.over()
    assert put(session, chain(4, seed=1), pages) == [True] * 4
    assert found_in(session, hashes).pages == 0, "the first set after the trouble cleared it"
    assert found_in(session, chain(4, seed=1)).pages == 4


def test_what_was_being_written_while_it_was_cleared_does_not_come_back(two_tier_rig, monkeypatch):
    monkeypatch.setattr("sgkv.store.session._DISCARD_TIMEOUT", 0.1)
    trouble = Trouble(deadline=30.0)
    store = two_tier_rig.store(wrap=trouble.wrap)
    session = store.open(namespace(), layout())
    trouble.now(Fault.HANG, "put")
    put(session, chain(4), random_pages(4))
    assert trouble.faulty.wait_hanging(10)
    session.clear()
    trouble.over()
    assert store.flush(10)
    assert found_in(session, chain(4)).pages == 0
    put(session, chain(4, seed=1), random_pages(4))
    assert found_in(session, chain(4)).pages == 0
    assert store.flush(10)
    assert found_in(session, chain(4, seed=1)).pages == 4


def test_a_lookup_of_nothing(disk_rig):
    session = disk_rig.store().open(namespace(), layout())
    assert session.lookup(Span([]), Deadline(0)).pages == 0
