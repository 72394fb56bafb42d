"""Opening and closing (rule 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from sgkv.backends.base import Backend, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, fill, get, key_of, put


class LifetimeTests:
    """A closed backend answers, and holds nothing back."""

    build: Callable[[Path, int], Backend]

    def test_after_close_there_are_only_refusals(self, backend: Backend) -> None:
        fill(backend, 3, 5000)
        backend.close()
        assert put(backend, key_of(9), b"late") is Status.CLOSED
        assert get(backend, key_of(0), 5000) is Status.CLOSED
        assert get(backend, key_of(0), 5000, Deadline(5.0)) is Status.CLOSED
        assert backend.contains([key_of(0)]) == [False]
        assert backend.delete([key_of(0)]) == [False]
        assert backend.pin([key_of(0)]) == [False]
        backend.touch([key_of(0)])
        assert backend.delete_prefix("any/") is False

    def test_close_twice(self, backend: Backend) -> None:
        backend.close()
        backend.close()

    def test_close_waits_for_batches_under_way(self, backend: Backend) -> None:
        inside, leave = threading.Event(), threading.Event()
        statuses: list[Status] = []

        def prepare() -> None:
            inside.set()
            assert leave.wait(10)

        item = PutItem(key_of(1), [memoryview(blob(5000))], prepare)
        writer = threading.Thread(target=lambda: statuses.extend(backend.put([item])))
        writer.start()
        assert inside.wait(10)
        closer = threading.Thread(target=backend.close)
        closer.start()
        leave.set()
        closer.join(10)
        writer.join(10)
        assert not closer.is_alive()
        assert statuses in ([Status.OK], [Status.CLOSED])

    def test_no_thread_is_left_behind(self, tmp_path: Path) -> None:
        before = set(threading.enumerate())
        backend = self.build(tmp_path, 4 << 20)
        fill(backend, 8, 100_000)
        get(backend, key_of(0), 100_000, Deadline(5.0))
        backend.close()
        wait_until(lambda: set(threading.enumerate()) <= before, "its threads to have ended", 10.0)
