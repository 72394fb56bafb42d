"""SIGKILL at arbitrary moments: what was published is there again, right, and counted.

The adapter runs in a process of its own without SGLang's server, so that it can be killed often; the
servers of test_restored.py are killed too.
"""

import contextlib
import multiprocessing
import random
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sgkv.testing.waiting import wait_until
from tests.e2e.hammer import MAX_SEQUENCES, PAGES, Store, hammer
from tests.e2e.rig import Folder

pytestmark = pytest.mark.slow

ROUNDS = 8
OPENS_IN = 5.0
"""Seconds, on busy cores."""


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Children come from a server that has imported SGLang and has no threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.e2e.hammer"])
    return context


def killed_while_writing(
    processes: ForkServerContext, folder: Folder, capacity: str, number: int, after: float
) -> list[int]:
    """Let a process write for `after` seconds from its first report on; what it reported as safe."""
    receiver, sender = processes.Pipe(duplex=False)
    first = number * MAX_SEQUENCES
    child = processes.Process(target=hammer, args=(folder.path, capacity, first, sender), daemon=True)
    child.start()
    sender.close()
    assert receiver.poll(60), "the process stored nothing"
    child.join(after)
    child.kill()
    child.join()
    safe = []
    with contextlib.suppress(EOFError, OSError):  # the last report may have been cut off
        while True:
            safe.append(int(receiver.recv_bytes()))
    return safe


@contextlib.contextmanager
def reopened(folder: Folder, capacity: str) -> Iterator[Store]:
    """The store in this process; checks that it opens quickly, counts right and cleans up."""
    began = time.monotonic()
    store = Store(folder.path, capacity, cpu=False)
    try:
        wait_until(lambda: _used(store) == folder.quota(), "used bytes to be those on disk", OPENS_IN)
        wait_until(lambda: not folder.temps(), "temporary files of the dead to go", OPENS_IN)
        assert time.monotonic() - began < OPENS_IN
        yield store
    finally:
        store.adapter.close()


def _used(store: Store) -> int:
    return store.adapter.store.stats().tiers["disk"].used_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "kv")


def test_what_was_safe_on_disk_is_served_after_every_kill(processes: ForkServerContext, folder: Folder):
    moments, safe = random.Random(4), []
    for number in range(ROUNDS):
        safe += killed_while_writing(processes, folder, "1GiB", number, moments.uniform(0.0, 0.3))
        with reopened(folder, "1GiB") as store:
            chosen = {*safe[-20:], *moments.sample(safe, min(20, len(safe)))}
            assert {store.get(sequence) for sequence in chosen} == {(PAGES, 0)}
    assert not folder.quarantined()


def test_under_a_tight_quota_nothing_is_wrong_and_nothing_too_much(
    processes: ForkServerContext, folder: Folder
):
    moments, capacity = random.Random(5), 8 * 2**20
    for number in range(ROUNDS):
        safe = killed_while_writing(processes, folder, str(capacity), number, moments.uniform(0.1, 0.4))
        assert 0 < folder.quota() <= capacity
        with reopened(folder, str(capacity)) as store:
            found = [store.get(sequence) for sequence in safe]
            assert {wrong for _, wrong in found} == {0}
            assert any(pages for pages, _ in found)
            assert store.put(number * MAX_SEQUENCES + MAX_SEQUENCES - 1)
            assert folder.quota() <= capacity
    assert not folder.quarantined()
