"""Kinds of pools: with a standalone client on the machine, and with SSDs behind the memory."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import mooncake
import pytest

from sgkv.backends.base import Status
from sgkv.testing.process import ProcessTree
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.mooncake.pool import MIB, Pool, free_port

pytestmark = pytest.mark.slow


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class TestStandalone:
    """The client is a process of its own, which reaches only memory that it shares with us."""

    @pytest.fixture
    def client(self, own_pool: Pool) -> Iterator[str]:
        """A ``mooncake_client`` with a segment; its address."""
        own_pool.start(node_bytes=0)
        port = free_port()
        command = [
            str(Path(mooncake.__file__).parent / "mooncake_client"),
            "-host=127.0.0.1",
            f"-port={port}",
            f"-master_server_address={own_pool.master.address}",
            "-metadata_server=P2PHANDSHAKE",
            "-global_segment_size=256 MB",
            "-logtostderr",
        ]
        environment = {**os.environ, "MC_TCP_BIND_ADDRESS": "127.0.0.1"}
        tree = ProcessTree(command, environment, own_pool.folder / "client.log")
        try:
            wait_until(own_pool.master.admin.segments, "the client's segment", 30)
            wait_until(lambda: listens(port), "the client to listen", 30)
            yield f"127.0.0.1:{port}"
        finally:
            tree.kill()

    def test_blobs_go_and_come(self, own_pool: Pool, client: str):
        backend = own_pool.open(standalone=client)
        keys = fill(backend, 6, MIB)
        assert backend.contains(keys) == [True] * 6
        for number, key in enumerate(keys):
            assert get(backend, key, MIB) == blob(MIB, number)
        assert put(backend, key_of(0), b"again") is Status.EXISTS
        assert get(backend, key_of(99), 10) is Status.ABSENT
        assert backend.delete(keys[:1]) == [True]

    def test_a_blob_of_several_slots_and_one_too_large(self, own_pool: Pool, client: str):
        backend = own_pool.open(standalone=client)
        assert put(backend, key_of(1), blob(20 * MIB + 7)) is Status.OK
        assert get(backend, key_of(1), 20 * MIB + 7) == blob(20 * MIB + 7)
        assert put(backend, key_of(2), bytes(65 * MIB)) is Status.ERROR

    def test_memory_of_ours_cannot_be_registered(self, own_pool: Pool, client: str):
        backend = own_pool.open(standalone=client)
        assert not backend.register_memory(memoryview(bytearray(MIB)))

    def test_another_process_without_it_reads_the_same(self, own_pool: Pool, client: str):
        fill(own_pool.open(standalone=client), 2, MIB)
        assert get(own_pool.open(), key_of(1), MIB) == blob(MIB, 1)


class TestSsd:
    def test_more_than_the_memory_holds_is_kept_on_disk(
        self, own_pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Best effort by the library: small buckets make it write soon."""
        monkeypatch.setenv("MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR", "file_per_key_storage_backend")
        monkeypatch.setenv("MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS", "1")
        ssd = tmp_path / "ssd"
        ssd.mkdir()
        own_pool.start(node_bytes=0, flags=["-enable_offload=true"], lease_ms=100)
        own_pool.add_node(64 * MIB, ssd=ssd)
        backend = own_pool.open()
        for number in range(100):
            wait_until(lambda n=number: put(backend, key_of(n), blob(MIB, n)).ok, "room", 20)
        found = [get(backend, key_of(number), MIB) for number in range(100)]
        there = [number for number, data in enumerate(found) if isinstance(data, bytes)]
        assert all(found[number] == blob(MIB, number) for number in there)
        assert len(there) > 64
