"""What a caller that gives up can rely on (rule 8)."""

from __future__ import annotations

from sgkv.backends.base import Backend, GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from tests.backends.blobs import blob, get, key_of, put

KEY = key_of(1)


class DeadlineTests:
    """Time that suffices changes nothing; time that is over leaves the buffers alone."""

    def test_a_deadline_that_suffices(self, backend: Backend) -> None:
        data = blob((2 << 20) + 5)
        assert put(backend, KEY, data, Deadline(20.0)) is Status.OK
        assert get(backend, KEY, len(data), Deadline(20.0)) == data
        assert get(backend, KEY, len(data) + 1, Deadline(20.0)) is Status.SHORT
        assert get(backend, key_of(2), 1, Deadline(None)) is Status.ABSENT

    def test_many_items_under_a_deadline(self, backend: Backend) -> None:
        data = {key_of(number): blob(9000, number) for number in range(40)}
        puts = [PutItem(key, [memoryview(value)]) for key, value in data.items()]
        assert set(backend.put(puts, Deadline(20.0))) == {Status.OK}
        buffers = {key: bytearray(9000) for key in data}
        gets = [GetItem(key, [Part(0, memoryview(into))]) for key, into in buffers.items()]
        assert set(backend.get(gets, Deadline(20.0))) == {Status.OK}
        assert buffers == data

    def test_get_after_its_deadline_leaves_the_buffers_alone(self, backend: Backend) -> None:
        put(backend, KEY, blob(5000))
        into = bytearray(5000)
        items = [GetItem(KEY, [Part(0, memoryview(into))])]
        assert backend.get(items, Deadline(0.0)) == [Status.TIMEOUT]
        assert into == bytes(5000)

    def test_put_after_its_deadline_publishes_nothing(self, backend: Backend) -> None:
        assert put(backend, KEY, blob(5000), Deadline(0.0)) is Status.TIMEOUT
        assert backend.contains([KEY]) == [False]
        assert backend.stats().used_bytes == 0

    def test_cancelled_is_as_good_as_expired(self, backend: Backend) -> None:
        put(backend, KEY, blob(5000))
        deadline = Deadline(None)
        deadline.cancel()
        assert get(backend, KEY, 5000, deadline) is Status.TIMEOUT
        assert put(backend, key_of(2), b"late", deadline) is Status.TIMEOUT
        assert backend.contains([key_of(2)]) == [False]
