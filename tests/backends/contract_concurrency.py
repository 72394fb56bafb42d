"""Many threads at once (rules 1, 3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sgkv.backends.base import Backend, GetItem, Part, Status
from tests.backends.blobs import blob, get, key_of, put

THREADS = 4
SIZE = 96 << 10


def at_once(work: Callable[[int], None]) -> None:
    """Run `work(i)` in `THREADS` threads that start together; raises what any of them raised."""
    start = threading.Barrier(THREADS)

    def run(at: int) -> None:
        start.wait(10)
        work(at)

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(run, at) for at in range(THREADS)]:
            future.result(60)


class ConcurrencyTests:
    """A reader sees a whole blob or none, whoever writes, deletes and evicts meanwhile."""

    def test_writers_of_one_key_agree(self, backend: Backend) -> None:
        for number in range(10):
            statuses: list[Status] = []

            def write(at: int, number: int = number, statuses: list[Status] = statuses) -> None:
                statuses.append(put(backend, key_of(number), bytes([at]) * SIZE))

            at_once(write)
            assert sorted(status.value for status in statuses) == ["exists"] * (THREADS - 1) + ["ok"]
            found = get(backend, key_of(number), SIZE)
            assert isinstance(found, bytes)
            assert found == found[:1] * SIZE

    def test_readers_see_whole_blobs_under_writers_and_deleters(self, backend: Backend) -> None:
        key, rounds = key_of(1), 60

        def work(at: int) -> None:
            for turn in range(rounds):
                if at == 0:
                    put(backend, key, bytes([turn]) * SIZE)
                elif at == 1:
                    backend.delete([key])
                else:
                    found = get(backend, key, SIZE)
                    assert found is Status.ABSENT or (isinstance(found, bytes) and found == found[:1] * SIZE)

        at_once(work)

    def test_no_wrong_bytes_under_eviction(self, backend: Backend) -> None:
        def work(at: int) -> None:
            for turn in range(40):
                number = (turn * 7 + at * 3) % 60
                put(backend, key_of(number), blob(SIZE, number))
                found = get(backend, key_of(number), SIZE)
                assert found is Status.ABSENT or found == blob(SIZE, number)

        at_once(work)
        stats = backend.stats()
        assert stats.used_bytes == stats.blobs * SIZE <= stats.capacity_bytes
        assert stats.leases == 0

    def test_batches_of_several_callers(self, backend: Backend) -> None:
        def work(at: int) -> None:
            keys = [key_of(100 * at + number) for number in range(8)]
            for key in keys:
                assert put(backend, key, key.encode()) is Status.OK
            buffers = [bytearray(len(key)) for key in keys]
            items = [GetItem(key, [Part(0, memoryview(b))]) for key, b in zip(keys, buffers, strict=True)]
            assert backend.get(items) == [Status.OK] * len(keys)
            assert [b.decode() for b in buffers] == keys

        at_once(work)

    def test_delete_prefix_among_writers(self, backend: Backend) -> None:
        def work(at: int) -> None:
            for turn in range(20):
                if at == 0:
                    backend.delete_prefix("dropped/")
                else:
                    assert put(backend, f"dropped/c/{at}-{turn}", b"x") is Status.OK

        at_once(work)
        backend.delete_prefix("dropped/")
        assert not list(backend.scan("dropped/"))
        assert backend.stats().used_bytes == 0
