"""Process trees end completely: when told to, by force, and when their owner dies."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.testing.process import ProcessTree
from sgkv.testing.waiting import wait_until

STUBBORN = "trap '' TERM; sleep 1000 & echo child $!; wait; wait"
"""A leader that SIGTERM does not end, with a child; says the child's pid."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator:
    trees: list[ProcessTree] = []

    def run(script: str) -> ProcessTree:
        trees.append(ProcessTree(["/bin/bash", "-c", script], os.environ, tmp_path / "log"))
        return trees[-1]

    yield run
    for tree in trees:
        tree.kill()


def child_of(tree: ProcessTree) -> int:
    return int(tree.wait_for_line(r"^child \d+", 30).split()[1])


def running(pid: int) -> bool:
    """Whether the process exists and is no corpse."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_kill_ends_children_too(start):
    tree = start(STUBBORN)
    child = child_of(tree)
    tree.kill()
    assert not running(child)
    assert not tree.alive


def test_stop_is_polite_first(start):
    tree = start("trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done")
    tree.wait_for_line("ready", 30)
    tree.stop()
    assert "bye" in tree.log.read_text()


def test_stop_uses_force_on_what_stays(start):
    tree = start(STUBBORN)
    child = child_of(tree)
    tree.stop(timeout=0.2)
    assert not running(child)


def test_a_child_that_outlives_its_leader_counts_as_alive_until_it_is_killed(start):
    tree = start("sleep 1000 & echo child $!; exit")
    child = child_of(tree)
    assert tree.alive
    tree.kill()
    assert not running(child)


def test_ending_twice_is_ending_once(start):
    tree = start("true")
    tree.kill()
    tree.stop()
    tree.kill()


def test_a_line_is_found_before_or_after_it_is_printed(start):
    tree = start("read -t 0.2 < <(:); echo one; echo two; sleep 1000")
    assert tree.wait_for_line("^two", 30) == "two"
    assert tree.wait_for_line("^one", 30) == "one"


def test_waiting_for_a_line_ends_with_the_process_and_says_what_it_said(start):
    tree = start("echo 'no such flag' >&2")
    with pytest.raises(RuntimeError, match=r"(?s)ended.*no such flag"):
        tree.wait_for_line("ready", 30)


def test_waiting_for_a_line_is_bounded(start):
    tree = start("echo busy; sleep 1000")
    with pytest.raises(RuntimeError, match="has not printed it after"):
        tree.wait_for_line("ready", 0.05)


def test_processor_time_is_that_of_the_whole_tree(start):
    tree = start("(for i in {1..200000}; do :; done; echo done; sleep 1000) & wait")
    tree.wait_for_line("done", 60)
    assert tree.cpu_seconds() > 0


def test_the_tree_dies_with_an_owner_that_is_killed(tmp_path: Path):
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path / "log"), STUBBORN], stdout=subprocess.PIPE, text=True
    )
    leader, child = (os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split())
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    for process in (leader, child):
        assert select.select([process], [], [], 30)[0], "still running"
        os.close(process)


_OWNER = """
import os, sys, time
from pathlib import Path
from sgkv.testing.process import ProcessTree
tree = ProcessTree(["/bin/bash", "-c", sys.argv[2]], os.environ, Path(sys.argv[1]))
print(tree.pid, tree.wait_for_line("^child", 30).split()[1], flush=True)
time.sleep(1000)
"""


def test_waiting_returns_what_was_seen_and_gives_up_in_time():
    seen = threading.Event()
    threading.Timer(0.05, seen.set).start()
    assert wait_until(seen.is_set, "the timer", timeout=30)
    with pytest.raises(TimeoutError, match=r"the moon; last seen: 0"):
        wait_until(lambda: 0, "the moon", timeout=0.05)
