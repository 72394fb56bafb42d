"""`sgkv mooncake up` and `sgkv doctor mooncake`, as commands, on pools that work and on some that do not."""

import signal
import socket
import subprocess
import sys
import threading

import pytest
import yaml

from sgkv.backends.mooncake import diagnosis
from sgkv.backends.mooncake.admin import Admin
from sgkv.backends.mooncake.diagnosis import diagnose
from sgkv.backends.mooncake.library import _explain
from sgkv.backends.mooncake.reachable import why_not_reachable
from sgkv.config import MooncakeTier, load
from tests.mooncake.pool import MIB, Pool, free_port

pytestmark = pytest.mark.slow

SGKV = [sys.executable, "-m", "sgkv"]
SECONDS = 60


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*SGKV, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def doctor(pool: Pool) -> subprocess.CompletedProcess[str]:
    return run("doctor", "mooncake", "--master", pool.master.address, "--admin", pool.master.admin.url)


def ports() -> list[object]:
    return ["--port", free_port(), "--admin-port", free_port(), "--size", "32MiB"]


def test_up_runs_a_command_and_ends_with_it():
    done = run("mooncake", "up", *ports(), "--", "sh", "-c", "echo inside; exit 3")
    assert done.returncode == 3
    assert "inside" in done.stdout


def test_what_up_prints_is_a_configuration_for_its_pool():
    up = subprocess.Popen([*SGKV, "mooncake", "up", *map(str, ports())], stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in up.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        tier = load(yaml.safe_load("".join(lines)), environ={}).config.tiers[1]
        assert isinstance(tier, MooncakeTier)
        assert run("doctor", "mooncake", "--master", tier.master, "--admin", tier.admin).returncode == 0
        up.send_signal(signal.SIGINT)
        assert up.wait(SECONDS) == 0
    finally:
        up.kill()
        up.stdout.close()


def test_a_port_that_is_taken(pool: Pool):
    taken = pool.master.address.rpartition(":")[2]
    done = run(
        "mooncake", "up", "--port", taken, "--admin-port", free_port(), "--size", "32MiB", "--", "true"
    )
    assert done.returncode == 1
    assert "no pool" in done.stderr


def test_a_pool_that_works(pool: Pool):
    done = doctor(pool)
    assert done.returncode == 0, done.stdout
    assert "stored, read back and removed" in done.stdout
    assert not list(pool.master.admin.blobs("doctor/"))


def test_no_master():
    done = run("doctor", "mooncake", "--master", f"127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "no master" in done.stdout


def test_a_master_that_hangs(own_pool: Pool):
    own_pool.start(node_bytes=0)
    own_pool.master.pause()
    done = doctor(own_pool)
    assert done.returncode == 1
    assert "hangs" in done.stdout


def test_no_node(own_pool: Pool):
    own_pool.start(node_bytes=0)
    done = doctor(own_pool)
    assert done.returncode == 1
    assert "start storage nodes" in done.stdout


def test_tenants_that_are_not_isolated(pool: Pool):
    (bad,) = [finding for finding in diagnose(pool.options(tenant="team")) if finding.ok is False]
    assert "-enable_multi_tenants" in bad.text


def test_rdma_that_is_not_there(pool: Pool):
    notes = [finding.text for finding in diagnose(pool.options(protocol="rdma")) if finding.ok is None]
    assert any("will use tcp" in note for note in notes)
    assert any("nodes that use tcp" in note for note in notes)


def test_the_doctor_gives_a_pool_no_memory_that_goes_with_it(pool: Pool, tmp_path, monkeypatch):
    """Nor does it touch the folder of a running server."""
    given = []
    monkeypatch.setattr(
        diagnosis, "MooncakeBackend", lambda options, **_: given.append(options) or pool.open()
    )
    wanted = pool.options(segment_bytes=64 * MIB, ssd_path=str(tmp_path))
    assert all(finding.ok is not False for finding in diagnose(wanted))
    assert [(options.segment_bytes, options.ssd_path) for options in given] == [(0, "")]


@pytest.mark.parametrize("says", [b"", b"220 not HTTP\r\n"])
def test_something_else_at_the_port_of_the_masters_http(pool: Pool, says: bytes):
    """It is no reason not to connect, and no reason to fail."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            for _ in range(3):
                connection, _ = other.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        options = pool.options(admin=f"http://127.0.0.1:{other.getsockname()[1]}")
        assert why_not_reachable(options) is None
        with pytest.raises(OSError):
            Admin(options.admin).segments()


def test_proxies_are_not_asked_for_the_master(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Admin(pool.master.admin.url).ready()


def test_no_configuration_names_a_pool(tmp_path):
    config = tmp_path / "sgkv.json"
    config.write_text('{"tiers": [{"type": "cpu", "capacity": "64MiB"}]}')
    done = run("doctor", "mooncake", "--config", config)
    assert done.returncode == 2
    assert "--master" in done.stderr


def test_what_the_loader_says_becomes_what_to_do():
    advice = {
        "libibverbs.so.1: cannot open shared object file": "libibverbs1",
        "libcuda.so.1: cannot open shared object file": "mooncake-transfer-engine-non-cuda",
        "libcudart.so.12: cannot open shared object file": "mooncake-cuda12",
        "libmlx5.so.1: cannot open shared object file": "ibverbs-providers",
    }
    for said, wanted in advice.items():
        assert wanted in _explain(ImportError(said))
    assert "pip install" in _explain(ModuleNotFoundError("No module named 'mooncake'"))


def test_the_pool_of_these_tests_is_as_large_as_it_says(pool: Pool):
    (segment,) = pool.master.admin.segments()
    assert segment["size_bytes"] == 256 * MIB
