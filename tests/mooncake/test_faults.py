"""What the pool does to the calls of an engine: masters and nodes that hang, die and come back."""

import time
from collections.abc import Callable
from itertools import count

import pytest

from sgkv.backends.base import Backend, GetItem, Part, PutItem, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.guard import Guarded
from sgkv.backends.mooncake import MooncakeBackend, adrift
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.mooncake.pool import MIB, Pool

pytestmark = pytest.mark.slow

DEADLINE = 0.25
MARGIN = 0.01
TRIES = 5
DATA = blob(MIB)


def guarded(backend: Backend) -> Guarded:
    """With an engine's deadlines, and without a breaker that would make every call quick."""
    patience = BreakerPolicy(consecutive_failures=1000, window=1000, failure_share=1.0)
    times = {"contains_deadline": DEADLINE, "get_deadline": DEADLINE, "put_deadline": DEADLINE}
    return Guarded(backend, breaker=patience, max_inflight=64, **times)


def overruns(call: Callable[[], object]) -> list[float]:
    """Seconds that calls took beyond the deadline."""
    found = []
    for _ in range(TRIES):
        begin = time.monotonic()
        call()
        found.append(time.monotonic() - begin - DEADLINE)
    return found


def assert_prompt(call: Callable[[], object]):
    """Several calls keep the margin; the machine is not ours alone, so others may be a bit later."""
    late = sorted(overruns(call))
    assert late[1] <= MARGIN, late
    assert late[-1] < DEADLINE, late


def settle(backend: MooncakeBackend):
    """Wait until no native read or write is under way."""
    wait_until(lambda: not backend.stats().bounds["staging_slots"].used, "native calls to return", 120)


class TestHungMaster:
    def test_every_call_returns_in_time_and_works_again_afterwards(self, own_pool: Pool):
        backend = own_pool.start().open()
        calls, numbers = guarded(backend), count(10)
        fill(backend, 4, MIB)
        own_pool.master.pause()
        assert_prompt(lambda: calls.probe([key_of(0)]))
        assert_prompt(lambda: get(calls, key_of(0), MIB))
        assert_prompt(lambda: put(calls, key_of(next(numbers)), DATA))
        assert_prompt(lambda: calls.delete([key_of(0)]))
        own_pool.master.resume()
        wait_until(lambda: get(backend, key_of(1), MIB) == blob(MIB, 1), "the pool to answer again")
        assert put(backend, key_of(100), blob(MIB)) is Status.OK

    def test_a_lookup_that_could_not_be_asked_says_so(self, own_pool: Pool):
        backend = own_pool.start().open(rpc_timeout=0.5)
        own_pool.master.pause()
        assert backend.probe([key_of(0)]) == ([False], Status.ERROR)

    def test_a_blob_whose_end_it_did_not_hear_can_be_put_again(
        self, own_pool: Pool, monkeypatch: pytest.MonkeyPatch
    ):
        """One was to be published, one to be revoked: their sessions are not forgotten."""
        monkeypatch.setattr(adrift, "_SECONDS", 0.2)
        backend = own_pool.start().open(rpc_timeout=0.5)

        def hang():
            own_pool.master.pause()

        def hang_and_fail():
            hang()
            raise ValueError

        for number, prepare in enumerate((hang, hang_and_fail)):
            data = [memoryview(DATA)]
            assert backend.put([PutItem(key_of(number), data, prepare)]) == [Status.ERROR]
            own_pool.master.resume()
            again = [PutItem(key_of(number), data)]
            wait_until(lambda items=again: backend.put(items)[0].ok, "the key to be free", 20)
            assert get(backend, key_of(number), MIB) == DATA


class TestDeadMaster:
    def test_every_call_returns_in_time_and_a_new_master_is_used(self, own_pool: Pool):
        backend = own_pool.start().open()
        calls, numbers = guarded(backend), count(10)
        fill(backend, 4, MIB)
        own_pool.master.kill()
        assert_prompt(lambda: calls.probe([key_of(0)]))
        assert_prompt(lambda: get(calls, key_of(0), MIB))
        assert_prompt(lambda: put(calls, key_of(next(numbers)), DATA))
        own_pool.master.start()
        wait_until(lambda: put(backend, key_of(next(numbers)), blob(MIB)) is Status.OK, "a put to succeed")
        assert get(backend, key_of(0), MIB) is Status.ABSENT
        assert backend.contains([key_of(0)]) == [False]


class TestAbsentMaster:
    def test_opening_goes_on_without_it_and_finds_it_later(self, own_pool: Pool):
        own_pool.start()
        own_pool.master.kill()
        begin = time.monotonic()
        backend = own_pool.open(connect_wait=0.2)
        assert time.monotonic() - begin < 2.0
        assert not backend.connected
        assert backend.probe([key_of(0)]) == ([False], Status.ERROR)
        assert put(backend, key_of(0), b"early") is Status.ERROR
        assert get(backend, key_of(0), 5) is Status.ERROR
        own_pool.master.start()
        wait_until(lambda: put(backend, key_of(0), b"later") is Status.OK, "the backend to connect", 90)
        assert get(backend, key_of(0), 5) == b"later"


class TestHungNode:
    def test_reads_and_writes_return_in_time(self, own_pool: Pool):
        backend = own_pool.start().open(transfer_timeout=1.0)
        calls, numbers = guarded(backend), count(10)
        fill(backend, 4, MIB)
        own_pool.node.pause()
        assert_prompt(lambda: get(calls, key_of(0), MIB))
        assert_prompt(lambda: put(calls, key_of(next(numbers)), DATA))
        assert_prompt(lambda: calls.probe([key_of(0)]))

    def test_nothing_lands_after_the_caller_gave_up(self, own_pool: Pool):
        """Neither while the native call hangs nor when the node goes on after it failed."""
        backend = own_pool.start().open(transfer_timeout=1.0)
        size, number = 4 * MIB, 8
        keys = fill(backend, number, size)
        into = [bytearray(size) for _ in keys]
        items = [GetItem(key, [Part(0, memoryview(b))]) for key, b in zip(keys, into, strict=True)]
        own_pool.node.pause()

        def hung() -> bool:
            """On a busy machine the deadline may be over before a transfer has begun."""
            assert set(backend.get(items, Deadline(DEADLINE))) == {Status.TIMEOUT}
            settle(backend)
            return bool(backend.stats().bounds["staging_lost"].used)

        wait_until(hung, "a read to hang", 60)
        own_pool.node.resume()
        wait_until(lambda: put(backend, key_of(99), blob(size)) is Status.OK, "the node to be back", 60)
        assert get(backend, key_of(99), size) == blob(size)
        assert not any(map(any, into))

    def test_late_bytes_touch_no_later_read(self, own_pool: Pool):
        """What the hung node still sends goes to addresses that are not used again."""
        backend = own_pool.start().open(transfer_timeout=1.0)
        old = fill(backend, 6, 4 * MIB)
        hung = own_pool.node
        hung.pause()
        for key in old:
            assert get(backend, key, 4 * MIB, Deadline(0.05)) is Status.TIMEOUT
        settle(backend)
        wait_until(lambda: not backend.contains(old[:1])[0], "the hung node to be dropped", 30)
        own_pool.add_node()
        new = [key_of(number) for number in range(200, 206)]
        for key in new:
            wait_until(lambda key=key: put(backend, key, blob(4 * MIB, 7)).ok, "the new node", 30)
        hung.resume()
        for _ in range(5):
            for key in new:
                assert get(backend, key, 4 * MIB) in (blob(4 * MIB, 7), Status.ABSENT)


class TestDeadNode:
    def test_its_blobs_are_misses_at_once_and_others_can_be_put(self, own_pool: Pool):
        backend = own_pool.start().open()
        keys = fill(backend, 4, MIB)
        own_pool.node.kill()
        for key in keys:
            assert get(backend, key, MIB) in (Status.ERROR, Status.ABSENT)
        assert backend.contains(keys) == [False] * 4
        assert backend.stats().counters["unreachable_blobs"] == 4
        assert get(backend, keys[0], MIB) is Status.ABSENT
        own_pool.add_node()
        numbers = count(10)
        for _ in range(3):
            wait_until(lambda: put(backend, key_of(next(numbers)), blob(MIB)).ok, "room on the new node", 30)

    def test_a_node_that_comes_back_is_empty_and_used(self, own_pool: Pool):
        backend = own_pool.start().open()
        keys = fill(backend, 4, MIB)
        own_pool.node.restart()
        wait_until(lambda: put(backend, key_of(50), blob(MIB)).ok, "room on the restarted node", 30)
        for number, key in enumerate(keys):
            assert get(backend, key, MIB) in (Status.ERROR, Status.ABSENT, blob(MIB, number))


class TestLittleRoom:
    def test_a_full_pool_is_full_for_a_moment_and_then_takes_more(self, own_pool: Pool):
        backend = own_pool.start(node_bytes=32 * MIB).open(pin="hard")
        statuses = [put(backend, key_of(number), blob(MIB)) for number in range(40)]
        assert set(statuses) == {Status.OK, Status.FULL}
        assert backend.stats().counters["full"] == 1  # the others were not even tried
        assert all(backend.delete([key_of(number) for number in range(8)]))
        wait_until(lambda: put(backend, key_of(100), blob(MIB)).ok, "the pause to be over", 10)

    def test_a_blob_larger_than_all(self, own_pool: Pool):
        backend = own_pool.start(node_bytes=16 * MIB).open()
        assert put(backend, key_of(0), blob(32 * MIB)) is Status.FULL

    def test_no_wrong_bytes_while_the_master_evicts(self, own_pool: Pool):
        backend = own_pool.start(node_bytes=32 * MIB, lease_ms=1).open()
        for number in range(150):
            put(backend, key_of(number), blob(MIB, number % 7))
            wanted = max(0, number - 20)
            assert get(backend, key_of(wanted), MIB) in (blob(MIB, wanted % 7), Status.ABSENT)

    def test_leases_that_end_during_a_read(self, own_pool: Pool):
        backend = own_pool.start(lease_ms=1).open()
        assert put(backend, key_of(0), blob(48 * MIB)) is Status.OK
        for _ in range(5):
            assert get(backend, key_of(0), 48 * MIB) in (blob(48 * MIB), Status.ABSENT)

    def test_hard_pinned_blobs_stay(self, own_pool: Pool):
        backend = own_pool.start(node_bytes=32 * MIB, lease_ms=1).open(pin="hard")
        others = own_pool.open()
        assert put(backend, key_of(0), blob(MIB)) is Status.OK
        for number in range(1, 100):
            put(others, key_of(number), blob(MIB))
        assert get(backend, key_of(0), MIB) == blob(MIB)
