"""Bounded, and evicting in order (rules 4, 6)."""

from __future__ import annotations

import pytest

from sgkv.backends.base import Backend, Status
from tests.backends.blobs import blob, fill, get, key_of, put, put_item

SIZE = 256 << 10
ROOM = 16
"""Blobs of `SIZE` that fit."""


class CapacityTests:
    """The fixture's capacity is `ROOM * SIZE` bytes."""

    @pytest.fixture
    def full(self, backend: Backend) -> Backend:
        fill(backend, ROOM, SIZE)
        return backend

    def test_all_of_the_capacity_can_be_used(self, full: Backend) -> None:
        stats = full.stats()
        assert (stats.blobs, stats.evicted_blobs) == (ROOM, 0)
        assert stats.used_bytes == stats.capacity_bytes == ROOM * SIZE

    def test_never_more_than_the_capacity(self, backend: Backend) -> None:
        fill(backend, 3 * ROOM, SIZE)
        stats = backend.stats()
        assert stats.used_bytes <= stats.capacity_bytes
        assert stats.blobs + stats.evicted_blobs == 3 * ROOM
        assert stats.evicted_bytes == stats.evicted_blobs * SIZE

    def test_the_least_recently_put_goes_first(self, full: Backend) -> None:
        put(full, key_of(100), blob(SIZE))
        assert full.contains([key_of(0), key_of(1), key_of(100)]) == [False, True, True]

    def test_get_is_a_use(self, full: Backend) -> None:
        get(full, key_of(0), SIZE)
        put(full, key_of(100), blob(SIZE))
        assert full.contains([key_of(0), key_of(1)]) == [True, False]

    def test_contains_is_no_use(self, full: Backend) -> None:
        full.contains([key_of(0)])
        put(full, key_of(100), blob(SIZE))
        assert full.contains([key_of(0)]) == [False]

    def test_touch_is_a_use_and_the_last_is_the_most_recent(self, full: Backend) -> None:
        others = [key_of(number) for number in range(2, ROOM)]
        full.touch([key_of(999), *others, key_of(1), key_of(0)])
        put(full, key_of(100), blob(SIZE))
        assert full.contains([key_of(2), key_of(1), key_of(0)]) == [False, True, True]

    def test_a_blob_larger_than_all_is_full_and_evicts_nothing(self, full: Backend) -> None:
        assert put(full, key_of(100), blob(ROOM * SIZE + 1)) is Status.FULL
        assert full.stats().blobs == ROOM

    def test_a_blob_as_large_as_all(self, full: Backend) -> None:
        assert put(full, key_of(100), blob(ROOM * SIZE)) is Status.OK
        assert get(full, key_of(100), ROOM * SIZE) == blob(ROOM * SIZE)
        assert full.stats().blobs == 1

    def test_blobs_of_other_sizes_find_room(self, full: Backend) -> None:
        for number, size in enumerate([100, 5 * SIZE, 4096, 3 * SIZE + 1, 1, 2 * SIZE]):
            assert put(full, key_of(100 + number), blob(size)) is Status.OK
            assert get(full, key_of(100 + number), size) == blob(size)
        assert full.stats().used_bytes <= full.stats().capacity_bytes

    def test_room_of_deleted_blobs_is_used_again(self, full: Backend) -> None:
        full.delete([key_of(3), key_of(7)])
        assert put(full, key_of(100), blob(SIZE)) is Status.OK
        assert put(full, key_of(101), blob(SIZE)) is Status.OK
        assert full.stats().evicted_blobs == 0

    def test_pinned_blobs_stay(self, full: Backend) -> None:
        assert full.pin([key_of(0), key_of(999)]) == [True, False]
        assert full.stats().pinned_bytes == SIZE
        for number in range(100, 100 + 2 * ROOM):
            assert put(full, key_of(number), blob(SIZE)) is Status.OK
        assert get(full, key_of(0), SIZE) == blob(SIZE, 0)

    def test_pinned_blobs_stay_when_others_need_more_room(self, full: Backend) -> None:
        full.pin([key_of(0), key_of(5)])
        assert put(full, key_of(100), blob(3 * SIZE)) is Status.OK
        assert full.contains([key_of(0), key_of(5), key_of(100)]) == [True, True, True]

    def test_nothing_but_pinned_blobs_is_full(self, full: Backend) -> None:
        keys = [key_of(number) for number in range(ROOM)]
        assert all(full.pin(keys))
        assert put(full, key_of(100), blob(SIZE)) is Status.FULL
        assert full.pin(keys[:1], pinned=False) == [True]
        assert put(full, key_of(100), blob(SIZE)) is Status.OK
        assert full.contains(keys[:2]) == [False, True]

    def test_pinning_twice_needs_one_unpin(self, full: Backend) -> None:
        full.pin([key_of(0)])
        full.pin([key_of(0)])
        full.pin([key_of(0)], pinned=False)
        assert full.stats().pinned_bytes == 0

    def test_pinned_blobs_can_be_deleted(self, full: Backend) -> None:
        full.pin([key_of(0)])
        assert full.delete([key_of(0)]) == [True]
        assert full.stats().pinned_bytes == 0

    def test_failed_puts_keep_no_room(self, full: Backend) -> None:
        def prepare() -> None:
            raise OSError("no pages")

        for number in range(100, 100 + ROOM):
            item = put_item(key_of(number), blob(SIZE))
            item.prepare = prepare
            assert full.put([item]) == [Status.ERROR]
        stats = full.stats()
        assert stats.used_bytes == stats.blobs * SIZE
        assert stats.leases == 0
