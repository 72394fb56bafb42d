"""Engines and daemons that end, in order or not: what they held comes back, and nobody waits for them."""

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.node.store import AttachedStore
from sgkv.reasons import MissReason
from sgkv.store.span import Span
from sgkv.testing.node import NodeProcess
from sgkv.testing.waiting import wait_until
from tests.node.conftest import Pool, spread
from tests.node.contents import PAGES, contents, wrong_pages
from tests.node.driver import WRONG
from tests.store.conftest import blank_pages, chain, found_in, joined, layout, namespace, put, read

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@contextmanager
def engine(path: Path, *what: str):
    """An engine in a process of its own, once it holds what it should."""
    command = [sys.executable, "-m", "tests.node.driver", str(path), *what]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "holding\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("what", ["leases", "room"])
def test_what_a_killed_engine_held_is_back_within_a_second(node_rig, what):
    node = node_rig.node()
    if what == "leases":
        put(node_rig.attach(node).open(namespace(), layout()), chain(PAGES), contents(0))
        node.store.flush(10)
        node_rig.stores[0].close()
    before = node.store.stats().tiers["cpu"].used_bytes
    with engine(node.path, "hold", what) as process:
        assert node.leases == PAGES
        process.kill()
        node.wait_idle(1.0)
    assert node.store.stats().tiers["cpu"].used_bytes == before


@pytest.mark.parametrize("fence", [(), ("600",)], ids=["copied", "shared memory"])
def test_engines_killed_in_the_middle_of_put_and_get_leak_nothing_and_break_nothing(node_rig, fence):
    node = node_rig.node(cpu_bytes=1 << 20)
    source = random.Random(1)
    for seed in range(3):
        with (
            engine(node.path, "traffic", str(seed), *fence) as one,
            engine(node.path, "traffic", str(seed + 3), *fence) as two,
        ):
            time.sleep(source.uniform(0.05, 0.3))  # an arbitrary moment of their traffic
            one.kill()
            two.kill()
            assert WRONG not in (one.wait(), two.wait())
        node.store.flush(10)
        node.wait_idle()
    stats = node.store.stats().tiers["cpu"]
    assert stats.used_bytes == stats.blobs * 8192, "every block that is taken holds a page that can be read"
    assert node.store.counters.get("internal_errors") == 0
    session = node_rig.attach(node).open(namespace(), layout())
    for seed in range(8):
        assert not wrong_pages(seed, *read(session, chain(PAGES, seed)))


@pytest.fixture
def daemon(tmp_path):
    """A daemon in a process of its own, over memory and disk."""
    disk = {"type": "disk", "path": str(tmp_path / "kv"), "capacity": "64MiB"}
    settings = {
        "chunk_tokens": 64,
        "tiers": [{"type": "cpu", "capacity": "16MiB"}, disk],
        "write_behind": {"tail_delay": 0.01},
    }
    with NodeProcess(tmp_path / "node", settings) as daemon:
        yield daemon


@pytest.fixture
def attached(daemon):
    store = AttachedStore(daemon.socket, chunk_tokens=64, retry=0.2)
    yield store
    store.close()


def test_a_daemon_killed_under_traffic_costs_misses_and_nothing_else(daemon, attached):
    session = attached.open(namespace(), layout())
    assert all(put(session, chain(PAGES), contents(0)))
    assert attached.flush(10)
    wrong, slowest, stop = [], [0.0], threading.Event()

    def traffic(start: int) -> None:
        seed = start
        while not stop.is_set():
            seed = (seed + 1) % 8
            began = time.monotonic()
            put(session, chain(PAGES, seed), contents(seed))
            reasons, pages = read(session, chain(PAGES, seed))
            slowest[0] = max(slowest[0], time.monotonic() - began)
            wrong.extend(wrong_pages(seed, reasons, pages))

    clients = [threading.Thread(target=traffic, args=(number,)) for number in range(3)]
    for client in clients:
        client.start()
    for _ in range(2):
        threading.Event().wait(0.3)
        daemon.kill()
        wait_until(lambda: attached.away, "the loss to be noticed", 5)
        assert session.lookup(Span(chain(PAGES)), Deadline(5)).reason is MissReason.NODE_AWAY
        daemon.start()
        wait_until(lambda: not attached.away, "the engine to be attached again", 5)
    stop.set()
    for client in clients:
        client.join(30)
    assert not wrong
    assert slowest[0] < 5.0
    wait_until(lambda: found_in(session, chain(PAGES)).pages == PAGES, "what was on disk", 10)
    assert read(session, chain(PAGES)) == ([None] * PAGES, joined(contents(0)))
    assert attached.counters.get("internal_errors") == 0


def test_without_a_daemon_calls_miss_at_once_and_work_once_it_is_there(daemon, attached):
    daemon.kill()
    session = attached.open(namespace(), layout())
    began = time.monotonic()
    for seed in range(200):
        assert read(session, chain(PAGES, seed))[0] == [MissReason.NODE_AWAY] * PAGES
        assert put(session, chain(PAGES, seed), contents(seed)) == [False] * PAGES
    assert time.monotonic() - began < 5.0
    daemon.start()
    wait_until(lambda: not attached.away, "the engine to be attached", 5)
    assert put(session, chain(PAGES), contents(0)) == [True] * PAGES


def test_a_daemon_that_hangs_costs_two_deadlines_and_then_nothing(daemon, attached):
    session = attached.open(namespace(), layout())
    put(session, chain(PAGES), contents(0))
    daemon.pause()
    began = time.monotonic()
    reasons = [session.lookup(Span(chain(PAGES)), Deadline(0.2)).reason for _ in range(50)]
    assert time.monotonic() - began < 2.0
    assert reasons == [MissReason.TIMEOUT] * 2 + [MissReason.NODE_AWAY] * 48
    daemon.resume()
    wait_until(lambda: not attached.away, "the engine to be attached again", 10)
    assert found_in(session, chain(PAGES)).pages == PAGES


def test_a_daemon_that_hangs_with_lent_pages_is_ended_before_they_are_used_again(daemon):
    """It would write into them when it goes on, and they belong to another request by then."""
    store, pool = AttachedStore(daemon.socket, chunk_tokens=64, fence=0.2), Pool()
    store.register_memory(pool.view, pool.descriptor)
    session = store.open(namespace(), layout())
    own = pool.pages(PAGES)
    for page, right in zip(own, joined(contents(0)), strict=True):
        spread(right, page)
    assert all(put(session, chain(PAGES), own))
    assert session.get(Span(chain(PAGES)), own, Deadline(5)) == [None] * PAGES
    handle = os.pidfd_open(daemon.pid)
    daemon.pause()
    began = time.monotonic()
    assert session.get(Span(chain(PAGES)), own, Deadline(0.3)) == [MissReason.TIMEOUT] * PAGES
    assert time.monotonic() - began < 3.0
    assert select.select([handle], [], [], 0)[0], "the daemon has ended"
    os.close(handle)
    assert store.counters.get("node_fenced") == 1
    store.close()


def test_an_engine_that_slept_past_its_deadline_blames_nobody(daemon):
    """The answer is there when it wakes up, or the daemon is about to give it."""
    with engine(daemon.socket, "traffic", "0", "0.2") as process:
        for _ in range(4):
            process.send_signal(signal.SIGSTOP)
            threading.Event().wait(0.8)  # longer than a deadline and its fence
            process.send_signal(signal.SIGCONT)
            threading.Event().wait(0.1)
        assert daemon.tree.alive
        assert process.poll() is None, "it has read no wrong byte"


def test_sigterm_writes_what_is_queued_and_leaves_no_trace(daemon, attached, tmp_path):
    session = attached.open(namespace(), layout())
    assert all(put(session, chain(PAGES), contents(0)))
    daemon.stop()
    assert not daemon.socket.exists()
    assert read(session, chain(PAGES))[0] == [MissReason.NODE_AWAY] * PAGES
    daemon.start()
    wait_until(lambda: not attached.away, "the engine to be attached again", 5)
    wait_until(lambda: found_in(session, chain(PAGES)).pages == PAGES, "what was on disk", 10)


def test_a_second_daemon_does_not_take_the_first_ones_place(daemon):
    second = subprocess.run(
        [sys.executable, "-m", "sgkv", "node", "--config", str(daemon.file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 2
    assert "another daemon serves" in second.stderr
    assert daemon.tree.alive


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def attach_and_detach(node, times: int) -> None:
    for _ in range(times):
        store = AttachedStore(node.path, chunk_tokens=64)
        assert found_in(store.open(namespace(), layout()), chain(1)).reason is MissReason.ABSENT
        store.close()
    node.wait_idle()


@pytest.mark.parametrize("times", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_engines_that_come_and_go_leave_nothing_behind(node_rig, times):
    node = node_rig.node()
    attach_and_detach(node, 20)
    before = len(names("/proc/self/fd")), threading.active_count()
    attach_and_detach(node, times)
    after = len(names("/proc/self/fd")), threading.active_count()
    assert all(now <= then for now, then in zip(after, before, strict=True))
    assert not [name for name in names("/dev/shm") if "arena" in name]
    assert node.store.stats().tiers["cpu"].used_bytes == 0


def test_pages_that_are_neither_lent_nor_shared_come_through(daemon, attached):
    """Larger than the piece that goes in one message, and cut as the engine likes."""
    session = attached.open(namespace(), layout())
    pages = contents(5, 200)
    assert all(put(session, chain(200, 5), pages))
    into = blank_pages(200)
    assert session.get(Span(chain(200, 5)), into, Deadline(10)) == [None] * 200
    assert joined(into) == joined(pages)
