"""The daemon as a command: its file, its signals, its status, and what it will not do."""

import json
import os
import signal

import httpx
import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.config import ConfigError, load, resolve
from sgkv.node.daemon import daemon_config
from sgkv.node.lane import Memory
from sgkv.node.store import AttachedStore
from sgkv.node.wire import Welcome, WireError
from sgkv.store.build import build_store
from sgkv.testing.node import NodeProcess
from sgkv.testing.server import free_port
from sgkv.testing.waiting import wait_until
from tests.node.contents import contents
from tests.store.conftest import chain, found_in, layout, namespace, put

runner = CliRunner()
SETTINGS = {"chunk_tokens": 64, "tiers": [{"type": "cpu", "capacity": "16MiB"}]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with NodeProcess(tmp_path_factory.mktemp("node"), SETTINGS) as daemon:
        yield daemon


def test_its_status_is_for_people_and_for_programs(daemon):
    store = AttachedStore(daemon.socket, chunk_tokens=64)
    assert all(put(store.open(namespace(tenant="team-a"), layout()), chain(4), contents(0, 4)))
    shown = runner.invoke(app, ["node", "status", "--config", str(daemon.file)])
    assert shown.exit_code == 0
    assert "tenant team-a: 32 KiB of the cpu tier" in shown.stdout
    facts = json.loads(runner.invoke(app, ["node", "status", "--config", str(daemon.file), "--json"]).stdout)
    assert facts["tiers"]["cpu"]["blobs"] == 4
    assert facts["pid"] == daemon.pid
    store.close()


def test_without_a_daemon_the_status_says_so(tmp_path):
    file = tmp_path / "node.json"
    file.write_text(json.dumps({"node": {"socket": str(tmp_path / "nobody.sock")}}))
    shown = runner.invoke(app, ["node", "status", "--config", str(file)])
    assert shown.exit_code == 1
    assert "no daemon answers" in shown.stderr


def test_the_doctor_looks_at_the_daemon_of_engines_that_attach(daemon, tmp_path):
    def said(**settings) -> str:
        file = tmp_path / "engine.json"
        file.write_text(json.dumps({"mode": "attach", "tiers": SETTINGS["tiers"], **settings}))
        return runner.invoke(app, ["doctor", "--config", str(file)]).stdout

    there = {"socket": str(daemon.socket)}
    assert f"process {daemon.pid} answers" in said(node=there, chunk_tokens=64)
    assert "chunks of the daemon are of 64 tokens" in said(node=there)
    assert "no daemon answers" in said(node={"socket": str(tmp_path / "nobody.sock")})


def test_a_reload_changes_tenants_and_says_what_waits_for_a_restart(daemon):
    store = AttachedStore(daemon.socket, chunk_tokens=64, retry=0.1)
    session = store.open(namespace(), layout())
    assert all(put(session, chain(4, 1), contents(1, 4)))
    closed = {**SETTINGS, "ttl": "7d", "node": {"tenants": {"other": {"token": "a long secret"}}}}
    daemon.configure(closed)
    daemon.signal(signal.SIGHUP)
    daemon.tree.wait_for_line("reloaded; after a restart: ttl", 10)
    late = AttachedStore(daemon.socket, chunk_tokens=64, retry=0.1)
    assert found_in(late.open(namespace(), layout()), chain(4, 1)).pages == 0
    daemon.file.write_text("{not json")
    daemon.signal(signal.SIGHUP)
    daemon.tree.wait_for_line("the configuration is not reloaded", 10)
    daemon.configure(SETTINGS)
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: not late.away, "the engine to be let in", 10)
    assert found_in(late.open(namespace(), layout()), chain(4, 1)).pages == 4
    late.close()
    store.close()


def test_a_daemon_without_memory_to_share_is_refused(tmp_path):
    file = tmp_path / "node.json"
    disk = {"type": "disk", "path": str(tmp_path / "kv"), "capacity": "1MiB"}
    file.write_text(json.dumps({"tiers": [disk], "node": {"socket": str(tmp_path / "node.sock")}}))
    shown = runner.invoke(app, ["node", "--config", str(file)])
    assert shown.exit_code == 2
    assert "needs a cpu tier before all others" in shown.stderr


def test_one_file_is_for_the_daemon_and_its_engines(tmp_path, monkeypatch):
    monkeypatch.delenv("SGKV_CONFIG", raising=False)
    file = tmp_path / "sgkv.json"
    file.write_text(json.dumps({**SETTINGS, "mode": "attach", "node": {"socket": str(tmp_path / "s")}}))
    assert [tier.tier.name for tier in daemon_config(file).tiers] == ["cpu"]
    engine = resolve(load(file=file).config)
    assert engine.tiers == ()
    store = build_store(engine)
    assert isinstance(store, AttachedStore)
    store.close()


def test_a_socket_whose_name_is_too_long_is_refused():
    with pytest.raises(ConfigError, match=r"node\.socket"):
        resolve(load({"node": {"socket": "/" + 120 * "x"}}, environ={}).config)


def test_memory_that_was_let_go_is_not_mistaken_for_memory_of_our_own():
    """To mmap, a descriptor of -1 is a wish for new memory, full of zeros."""
    memory = Memory(Welcome("gone", 4096, 64), os.memfd_create("arena"))
    memory.close()
    with pytest.raises(WireError):
        _ = memory.view


def test_a_prometheus_server_reads_its_metrics(tmp_path):
    port = free_port()
    with NodeProcess(tmp_path, {**SETTINGS, "node": {"metrics_port": port}}) as daemon:
        store = AttachedStore(daemon.socket, chunk_tokens=64)
        assert all(put(store.open(namespace(), layout()), chain(4), contents(0, 4)))
        store.close()
        shown = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'sgkv_written_bytes_total{tier="cpu"} 24576.0' in shown
