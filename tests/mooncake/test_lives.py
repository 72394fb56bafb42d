"""What would end, or hang, a process that called the library bare. Each life is a process of its own."""

import subprocess
import sys

import pytest

from tests.mooncake.pool import Pool

SECONDS = 90
LIVES = [
    "end_without_closing",
    "close_twice_and_call",
    "call_before_connected",
    "connect_again",
    "several_in_one_process",
    "fork_and_use",
    "close_under_traffic",
    "bad_memory",
]

pytestmark = pytest.mark.slow


def begin(pool: Pool, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.mooncake.lives", name, pool.master.address, pool.master.admin.url]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.PIPE, text=True)


def assert_lives(process: subprocess.Popen[str], says: str = ""):
    try:
        out, errors = process.communicate(says, timeout=SECONDS)
    finally:
        process.kill()
    assert (process.returncode, out.splitlines()[-1:]) == (0, ["alive"]), errors[-4000:]


@pytest.mark.parametrize("name", LIVES)
def test_a_process_ends_as_it_should(own_pool: Pool, name: str):
    assert_lives(begin(own_pool.start(), name))


@pytest.mark.parametrize("name", ["end_without_closing", "close_under_traffic"])
def test_with_a_master_that_dies_meanwhile(own_pool: Pool, name: str):
    """Nothing it does can succeed any more; it may say so, but neither hang nor crash."""
    process = begin(own_pool.start(), name)
    own_pool.master.kill()
    try:
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode in (0, 1)


def test_an_end_while_the_master_hangs(own_pool: Pool):
    process = begin(own_pool.start(), "end_while_calls_hang")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    own_pool.master.pause()
    assert_lives(process, "go\n")


def test_memory_that_goes_away_after_a_timeout(own_pool: Pool):
    process = begin(own_pool.start(), "unmapped_after_a_timeout")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    own_pool.node.pause()
    assert_lives(process, "go\n")
