"""The CPU tier beyond the contract: leases, reservations, expiry, prefault."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.cpu import CpuBackend, Lease, Reservation
from tests.backends.blobs import NAMESPACE, blob, fill, get, key_of, put, put_item

SIZE = 64 << 10
ROOM = 16


class Clock:
    """Unix seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cpu(clock: Clock) -> Iterator[CpuBackend]:
    backend = CpuBackend(ROOM * SIZE, clock=clock)
    yield backend
    backend.close()


def lease(cpu: CpuBackend, key: str) -> Lease:
    found = cpu.lease([key])[0]
    assert found is not None
    return found


def reserve(cpu: CpuBackend, key: str, size: int) -> Reservation:
    found = cpu.reserve(key, size)
    assert isinstance(found, Reservation)
    return found


def test_a_lease_is_the_blob_itself_and_read_only(cpu: CpuBackend) -> None:
    put(cpu, key_of(1), blob(SIZE))
    held = lease(cpu, key_of(1))
    assert held.view == blob(SIZE)
    assert held.view.readonly
    held.release()


def test_leases_come_in_the_order_of_the_keys(cpu: CpuBackend) -> None:
    fill(cpu, 2, SIZE)
    leases = cpu.lease([key_of(1), key_of(9), key_of(0)])
    assert [held and bytes(held.view) for held in leases] == [blob(SIZE, 1), None, blob(SIZE, 0)]
    for held in leases:
        if held is not None:
            held.release()


def test_a_leased_blob_is_never_evicted(cpu: CpuBackend) -> None:
    fill(cpu, ROOM, SIZE)
    with lease(cpu, key_of(0)) as held:
        for number in range(100, 100 + 3 * ROOM):
            assert put(cpu, key_of(number), blob(SIZE)) is Status.OK
        assert cpu.contains([key_of(0)]) == [True]
        assert held.view == blob(SIZE, 0)


@pytest.mark.parametrize("size", [3 * SIZE, SIZE // 2])
def test_room_for_another_size_is_not_taken_from_leased_blobs(cpu: CpuBackend, size: int) -> None:
    keys = fill(cpu, ROOM, SIZE)
    held = cpu.lease([keys[0], keys[5]])
    cpu.touch(keys[6:])
    assert put(cpu, key_of(100), blob(size)) is Status.OK
    assert cpu.contains([keys[0], keys[5], key_of(100)]) == [True, True, True]
    for one in held:
        assert one is not None
        one.release()


def test_many_leased_blobs_are_passed_over_for_the_coldest_that_is_not(clock: Clock) -> None:
    """As many as wait for a slow disk. No other blob pays for them, and the next put does not look again."""
    cpu = CpuBackend(512 * 4096, clock=clock, prefault=False)
    keys = fill(cpu, 512, 4096)
    held = cpu.lease(keys[:200])
    cpu.touch(keys[200:])
    for number in range(600, 700):
        assert put(cpu, key_of(number), blob(4096)) is Status.OK
    assert cpu.contains(keys) == [True] * 200 + [False] * 100 + [True] * 212
    assert cpu.stats().evicted_blobs == 100
    for one in held:
        assert one is not None
        one.release()
    cpu.close()


def test_nothing_but_leased_blobs_is_full_and_all_comes_back(cpu: CpuBackend) -> None:
    held = cpu.lease(fill(cpu, ROOM, SIZE))
    assert put(cpu, key_of(100), blob(SIZE)) is Status.FULL
    assert put(cpu, key_of(100), blob(4 * SIZE)) is Status.FULL
    for one in held:
        assert one is not None
        one.release()
    assert put(cpu, key_of(100), blob(ROOM * SIZE)) is Status.OK


def test_a_deleted_leased_blob_is_unreadable_but_its_bytes_stay(cpu: CpuBackend) -> None:
    fill(cpu, ROOM, SIZE)
    held = lease(cpu, key_of(0))
    assert cpu.delete([key_of(0)]) == [True]
    assert cpu.contains([key_of(0)]) == [False]
    assert put(cpu, key_of(0), blob(SIZE, 77)) is Status.OK
    for number in range(100, 100 + 2 * ROOM):
        put(cpu, key_of(number), blob(SIZE))
    assert held.view == blob(SIZE, 0)
    assert cpu.stats().used_bytes == ROOM * SIZE
    assert cpu.stats().blobs == ROOM - 1
    held.release()
    assert cpu.stats().used_bytes == (ROOM - 1) * SIZE


def test_a_dropped_prefix_waits_for_leases_too(cpu: CpuBackend) -> None:
    fill(cpu, 4, SIZE)
    held = lease(cpu, key_of(2))
    cpu.delete_prefix(f"{NAMESPACE}/")
    assert cpu.stats().blobs == 0
    assert cpu.stats().used_bytes == SIZE
    assert held.view == blob(SIZE, 2)
    held.release()
    assert cpu.stats().used_bytes == 0


def test_a_second_release_is_an_error(cpu: CpuBackend) -> None:
    put(cpu, key_of(1), b"data")
    held = lease(cpu, key_of(1))
    held.release()
    with pytest.raises(RuntimeError, match="released before"):
        held.release()
    with lease(cpu, key_of(1)) as other:
        other.release()
    assert cpu.stats().leases == 0


def test_two_leases_of_one_blob_count_twice(cpu: CpuBackend) -> None:
    put(cpu, key_of(1), b"data")
    one, two = lease(cpu, key_of(1)), lease(cpu, key_of(1))
    assert cpu.stats().leases == 2
    one.release()
    two.release()
    assert cpu.stats().leases == 0


def test_a_lease_is_a_use(cpu: CpuBackend) -> None:
    fill(cpu, ROOM, SIZE)
    lease(cpu, key_of(0)).release()
    put(cpu, key_of(100), blob(SIZE))
    assert cpu.contains([key_of(0), key_of(1)]) == [True, False]


def test_a_lease_outlives_close(cpu: CpuBackend) -> None:
    put(cpu, key_of(1), blob(SIZE))
    held = lease(cpu, key_of(1))
    cpu.close()
    assert held.view == blob(SIZE)
    held.release()
    assert cpu.lease([key_of(1)]) == [None]


def test_a_reservation_is_filled_in_place_and_readable_after_commit(cpu: CpuBackend) -> None:
    room = reserve(cpu, key_of(1), 1000)
    assert cpu.contains([key_of(1)]) == [False]
    room.view[:] = blob(1000)
    assert room.commit() is Status.OK
    assert get(cpu, key_of(1), 1000) == blob(1000)
    with pytest.raises(RuntimeError, match="before"):
        room.commit()


def test_an_aborted_reservation_leaves_nothing(cpu: CpuBackend) -> None:
    reserve(cpu, key_of(1), SIZE).abort()
    with reserve(cpu, key_of(2), SIZE):
        assert cpu.stats().used_bytes == SIZE
    assert cpu.stats().used_bytes == cpu.stats().blobs == cpu.stats().leases == 0


def test_a_reservation_for_an_existing_key(cpu: CpuBackend) -> None:
    put(cpu, key_of(1), b"data")
    assert cpu.reserve(key_of(1), 4) is Status.EXISTS
    assert cpu.reserve(key_of(2), ROOM * SIZE + 1) is Status.FULL


def test_of_two_reservations_the_first_to_commit_wins(cpu: CpuBackend) -> None:
    one, two = reserve(cpu, key_of(1), 4), reserve(cpu, key_of(1), 4)
    one.view[:], two.view[:] = b"one.", b"two."
    assert two.commit() is Status.OK
    assert one.commit() is Status.EXISTS
    assert get(cpu, key_of(1), 4) == b"two."
    assert cpu.stats().used_bytes == 4096


def test_a_reservation_after_close(cpu: CpuBackend) -> None:
    room = reserve(cpu, key_of(1), 4)
    cpu.close()
    assert room.commit() is Status.CLOSED
    assert cpu.reserve(key_of(2), 4) is Status.CLOSED


def test_expired_blobs_are_absent_and_can_be_put_again(cpu: CpuBackend, clock: Clock) -> None:
    cpu.put([PutItem(key_of(1), [memoryview(b"short")], expires_at=1010), put_item(key_of(2), b"long")])
    assert cpu.contains([key_of(1), key_of(2)]) == [True, True]
    clock.now = 1010.0
    assert cpu.contains([key_of(1), key_of(2)]) == [False, True]
    assert get(cpu, key_of(1), 5) is Status.ABSENT
    assert put(cpu, key_of(1), b"again") is Status.OK
    assert cpu.lease([key_of(1)])[0] is not None


def test_large_batches_are_copied_by_several_threads() -> None:
    cpu = CpuBackend(32 << 20, copy_threads=3)
    threads, several = set[str](), threading.Event()
    size, numbers = 1 << 20, range(16)

    def note() -> None:
        threads.add(threading.current_thread().name)
        if len(threads) > 1:
            several.set()
        assert several.wait(10)

    items = [PutItem(key_of(n), [memoryview(blob(size, n))], note) for n in numbers]
    assert set(cpu.put(items)) == {Status.OK}
    buffers = [bytearray(size) for _ in numbers]
    gets = [GetItem(key_of(n), [Part(0, memoryview(buffers[n]))]) for n in numbers]
    assert set(cpu.get(gets)) == {Status.OK}
    assert all(buffers[n] == blob(size, n) for n in numbers)
    cpu.close()


def test_the_arena_is_faulted_in_ahead_of_use() -> None:
    cpu = CpuBackend(48 << 20)
    assert cpu.wait_prefaulted(20)
    assert cpu.stats().counters["prefaulted_bytes"] == 48 << 20
    cpu.close()
    lazy = CpuBackend(48 << 20, prefault=False)
    assert not lazy.wait_prefaulted(0)
    assert put(lazy, key_of(1), blob(SIZE)) is Status.OK
    lazy.close()


def test_close_ends_a_prefault_under_way() -> None:
    cpu = CpuBackend(4 << 30)
    cpu.close()
    assert cpu.stats().counters["prefaulted_bytes"] < 4 << 30


@pytest.mark.parametrize("capacity", [0, 4095, -1])
def test_a_capacity_below_one_block_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity must be at least 4096"):
        CpuBackend(capacity)


def test_an_unknown_eviction_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of"):
        CpuBackend(1 << 20, eviction="random")
