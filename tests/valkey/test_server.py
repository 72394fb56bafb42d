"""What the tier makes of a real server: sizes, expiry, memory, rights, and what else lives there."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.backends.valkey.writing import LARGEST_VALUE
from sgkv.testing.valkey import ValkeyServer
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, fill, get, key_of, put
from tests.valkey.conftest import Open

KEY = key_of(1)
MIB = 1 << 20


def test_far_parts_of_a_blob_come_together(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend, data = open_valkey(replace(server.options, prefix=prefix)), blob(3 * MIB)
    put(backend, KEY, data)
    offsets = [0, 500_000, 2 * MIB, 3 * MIB - 4096]
    buffers = [bytearray(4096) for _ in offsets]
    parts = [Part(at, memoryview(into)) for at, into in zip(offsets, buffers, strict=True)]
    assert backend.get([GetItem(KEY, parts)]) == [Status.OK]
    assert [bytes(into) for into in buffers] == [data[at : at + 4096] for at in offsets]


def test_batches_larger_than_a_row_keep_their_order(
    server: ValkeyServer, open_valkey: Open, prefix: str
) -> None:
    backend = open_valkey(replace(server.options, prefix=prefix))
    sizes = [MIB // 3, 3 * MIB, 1, 5000, MIB, 2 * MIB, 70_000, 4096]
    data = [blob(size, at) for at, size in enumerate(sizes)]
    items = [PutItem(key_of(at), [memoryview(value)]) for at, value in enumerate(data)]
    assert set(backend.put(items, Deadline(20.0))) == {Status.OK}
    buffers = [bytearray(size) for size in sizes]
    reads = [GetItem(key_of(at), [Part(0, memoryview(into))]) for at, into in enumerate(buffers)]
    assert set(backend.get(reads, Deadline(20.0))) == {Status.OK}
    assert buffers == data


def test_a_read_of_nothing_says_whether_the_blob_is_there(
    server: ValkeyServer, open_valkey: Open, prefix: str
) -> None:
    backend = open_valkey(replace(server.options, prefix=prefix))
    put(backend, KEY, b"data")
    assert backend.get([GetItem(KEY, []), GetItem(key_of(2), [])]) == [Status.OK, Status.ABSENT]


def test_blobs_expire_when_they_say(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend, now = open_valkey(replace(server.options, prefix=prefix)), int(time.time())
    items = [PutItem(key_of(at), [memoryview(b"data")], expires_at=at) for at in (0, now + 2, now + 3600, 1)]
    assert backend.put(items) == [Status.OK] * 4
    assert server.say("EXPIRETIME", prefix + key_of(now + 3600)) == now + 3600
    assert server.say("EXPIRETIME", prefix + key_of(0)) == -1
    assert backend.contains([key_of(1)]) == [False]
    wait_until(lambda: not backend.contains([key_of(now + 2)])[0], "the expiry", 10)
    assert backend.contains([key_of(0), key_of(now + 3600)]) == [True, True]


def test_a_second_put_leaves_the_expiry_alone(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend, later = open_valkey(replace(server.options, prefix=prefix)), int(time.time()) + 3600
    assert put(backend, KEY, b"data") is Status.OK
    assert backend.put([PutItem(KEY, [memoryview(b"data")], expires_at=later)]) == [Status.EXISTS]
    assert server.say("EXPIRETIME", prefix + KEY) == -1


def test_values_beyond_the_limit_are_refused_here(
    server: ValkeyServer, open_valkey: Open, prefix: str
) -> None:
    backend, piece = open_valkey(replace(server.options, prefix=prefix)), memoryview(bytes(MIB))
    item = PutItem(KEY, [piece] * (LARGEST_VALUE // MIB) + [piece[:1]])
    assert backend.put([item]) == [Status.FULL]
    assert backend.contains([KEY]) == [False]


def test_keys_of_others_are_not_ours(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    mine = open_valkey(replace(server.options, prefix=f"{prefix}a*[b]?\\/"))
    others = open_valkey(replace(server.options, prefix=f"{prefix}axxb1/"))
    for backend in (mine, others):
        fill(backend, 3, 100)
    assert {info.size for info in mine.scan()} == {100}
    assert mine.delete_prefix(f"{KEY.partition('/')[0]}/") is True
    assert not list(mine.scan())
    assert len(list(others.scan())) == 3


def test_a_prefix_of_thousands_is_emptied(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend = open_valkey(replace(server.options, prefix=prefix))
    items = [PutItem(key_of(at), [memoryview(b"x")]) for at in range(5000)]
    assert set(backend.put(items)) == {Status.OK}
    assert len({info.key for info in backend.scan()}) == 5000
    assert backend.delete_prefix(f"{KEY.partition('/')[0]}/") is True
    assert not list(backend.scan())


def test_a_value_that_is_no_blob_is_an_error(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    backend = open_valkey(replace(server.options, prefix=prefix))
    server.say("RPUSH", prefix + KEY, "a", "b")
    put(backend, key_of(2), b"data")
    assert get(backend, KEY, 4) is Status.ERROR
    assert get(backend, key_of(2), 4) == b"data"
    assert [info.key for info in backend.scan()] == [key_of(2)]
    assert backend.stats().counters["errors_refused"] == 1


def test_databases_are_apart(server: ValkeyServer, open_valkey: Open, prefix: str) -> None:
    first, second = (open_valkey(replace(server.options, prefix=prefix, database=at)) for at in (0, 3))
    put(first, KEY, b"data")
    assert first.contains([KEY]) == [True]
    assert second.contains([KEY]) == [False]


def test_a_server_that_may_not_evict_is_full(victim: ValkeyServer, open_valkey: Open) -> None:
    backend = open_valkey(victim.options)
    victim.say("CONFIG SET", "maxmemory", "4mb")
    statuses = [put(backend, key_of(at), blob(MIB, at)) for at in range(8)]
    assert statuses[0] is Status.OK
    assert statuses[-1] is Status.FULL
    assert get(backend, key_of(0), MIB) == blob(MIB, 0)
    assert backend.stats().counters["errors_full"] > 0


def test_a_server_that_evicts_takes_all(victim: ValkeyServer, open_valkey: Open) -> None:
    backend = open_valkey(victim.options)
    victim.say("CONFIG SET", "maxmemory", "8mb")
    victim.say("CONFIG SET", "maxmemory-policy", "allkeys-lru")
    for at in range(20):
        assert put(backend, key_of(at), blob(MIB, at)) is Status.OK
    found = backend.contains([key_of(at) for at in range(20)])
    assert found[-1]
    assert not all(found)
    assert backend.look_again(10)
    stats = backend.stats()
    assert (stats.blobs, stats.evicted_blobs) == (sum(found), 20 - sum(found))
    assert stats.used_bytes <= stats.capacity_bytes == 8 * MIB


def test_a_replica_can_be_read_and_refuses_writes(
    server: ValkeyServer, victim: ValkeyServer, open_valkey: Open, prefix: str
) -> None:
    put(open_valkey(replace(server.options, prefix=prefix)), KEY, b"data")
    server.say("CONFIG SET", "repl-diskless-sync-delay", "0")
    victim.say("REPLICAOF", *server.options.address.split(":"))
    backend = open_valkey(replace(victim.options, prefix=prefix))
    wait_until(lambda: backend.contains([KEY])[0], "the replica to catch up", 30)
    assert get(backend, KEY, 4) == b"data"
    assert put(backend, key_of(2), b"more") is Status.ERROR
    assert backend.stats().counters["errors_readonly"] == 1


def test_a_start_says_what_is_odd(
    victim: ValkeyServer, open_valkey: Open, caplog: pytest.LogCaptureFixture
) -> None:
    victim.say("CONFIG SET", "appendonly", "yes")
    with caplog.at_level(logging.INFO, "sgkv"):
        assert open_valkey(victim.options).wait_seen(10)
        victim.say("CONFIG SET", "maxmemory", "1gb")
        assert open_valkey(victim.options).wait_seen(10)
        victim.say("CONFIG SET", "maxmemory-policy", "volatile-lru")
        assert open_valkey(victim.options).wait_seen(10)
    text = caplog.text
    assert f"{victim.options.address}: " in text
    for odd in ("no maxmemory", "noeviction", "volatile-lru", "appendonly"):
        assert odd in text


class TestUsers:
    """A server with an access control list."""

    PASSWORD = "a secret that is nobody's business"
    RULES = "~sgkv/* +exists +getrange +set +unlink +touch +multi +exec +scan +strlen +info"

    @pytest.fixture
    def guarded(self, tmp_path: Path) -> ValkeyServer:
        users = tmp_path / "users.acl"
        users.write_text(f"user default off\nuser sgkv on #{_sha256(self.PASSWORD)} {self.RULES}\n")
        options = {"username": "sgkv", "password": self.PASSWORD}
        with ValkeyServer(tmp_path / "acl", settings={"aclfile": str(users)}, **options) as running:
            yield running

    def test_few_rights_are_enough(self, guarded: ValkeyServer, open_valkey: Open) -> None:
        backend = open_valkey(guarded.options, capacity=16 * MIB)
        assert backend.wait_seen(10)
        fill(backend, 20, MIB)
        assert get(backend, key_of(19), MIB) == blob(MIB, 19)
        assert backend.stats().evicted_blobs == 4
        assert backend.delete([key_of(19)]) == [True]
        assert backend.delete_prefix(f"{KEY.partition('/')[0]}/") is True
        assert not [name for name in backend.stats().counters if name.startswith("errors")]

    def test_a_wrong_password_is_an_error_and_no_secret(
        self, guarded: ValkeyServer, open_valkey: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        backend = open_valkey(replace(guarded.options, password=self.PASSWORD + "!"))
        assert backend.probe([KEY]) == ([False], Status.ERROR)
        assert put(backend, KEY, b"data") is Status.ERROR
        assert get(backend, KEY, 4) is Status.ERROR
        assert backend.stats().counters["errors_denied"] == 3
        assert self.PASSWORD not in caplog.text + repr(guarded.options)

    def test_what_a_user_may_not_do_is_an_error(self, guarded: ValkeyServer, open_valkey: Open) -> None:
        backend = open_valkey(replace(guarded.options, prefix="elsewhere/"))
        assert put(backend, KEY, b"data") is Status.ERROR
        assert get(backend, KEY, 4) is Status.ERROR
        assert not list(backend.scan())
        assert backend.delete_prefix("any/") is True


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
