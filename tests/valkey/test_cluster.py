"""A cluster of three: keys by their slots, slots that move, nodes that die."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from valkey.crc import key_slot

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.deadline import Deadline
from sgkv.testing.valkey import ValkeyServer, cluster
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, get, key_of, put
from tests.valkey.conftest import Open
from tests.valkey.scripts import Script, impatient

KEYS = [key_of(number) for number in range(60)]
SIZE = 50_000


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Sequence[ValkeyServer]]:
    """A cluster of a test's own, whose nodes serve on when another is gone."""
    with cluster(tmp_path / "fragile", 2) as running:
        for node in running:
            node.say("CONFIG SET", "cluster-require-full-coverage", "no")
        yield running


class Move:
    """A slot on its way from one node to another."""

    def __init__(self, slot: int, source: ValkeyServer, target: ValkeyServer) -> None:
        self._slot, self._source, self._target = slot, source, target
        self._to = target.say("CLUSTER MYID").decode()
        target.say("CLUSTER SETSLOT", slot, "IMPORTING", source.say("CLUSTER MYID").decode())
        source.say("CLUSTER SETSLOT", slot, "MIGRATING", self._to)

    def carry(self, name: str) -> None:
        """Move one key."""
        self._source.say("MIGRATE", *self._target.options.address.split(":"), name, 0, 5000)

    def end(self) -> None:
        for node in (self._target, self._source):
            node.say("CLUSTER SETSLOT", self._slot, "NODE", self._to)


def owner_of(nodes: Sequence[ValkeyServer], name: str) -> tuple[ValkeyServer, ValkeyServer]:
    """The node that has a key, and another."""
    for node in nodes:
        if any(first <= key_slot(name.encode()) <= last for first, last in _ranges(node)):
            return node, next(other for other in nodes if other is not node)
    raise AssertionError(name)


def _ranges(node: ValkeyServer) -> list[tuple[int, int]]:
    port = int(node.options.address.rpartition(":")[2])
    return [(row[0], row[1]) for row in node.say("CLUSTER SLOTS") if row[2][1] == port]


def test_a_batch_goes_to_every_node(nodes: Sequence[ValkeyServer], open_valkey: Open, prefix: str) -> None:
    backend = open_valkey(replace(nodes[1].options, prefix=prefix))
    items = [PutItem(key, [memoryview(blob(SIZE, at))]) for at, key in enumerate(KEYS)]
    assert set(backend.put(items, Deadline(20.0))) == {Status.OK}
    assert backend.contains([*KEYS, key_of(999)]) == [True] * 60 + [False]
    buffers = [bytearray(SIZE) for _ in KEYS]
    reads = [GetItem(key, [Part(0, memoryview(into))]) for key, into in zip(KEYS, buffers, strict=True)]
    assert set(backend.get(reads, Deadline(20.0))) == {Status.OK}
    assert buffers == [blob(SIZE, at) for at in range(60)]
    assert {info.key for info in backend.scan()} == set(KEYS)
    held = [len(node.say("KEYS", f"{prefix}*")) for node in nodes]
    assert sum(held) == 60
    assert min(held) > 0
    assert backend.delete_prefix(f"{KEYS[0].partition('/')[0]}/") is True
    assert not list(backend.scan())


def test_a_slot_that_moves_loses_nothing(
    nodes: Sequence[ValkeyServer], open_valkey: Open, prefix: str
) -> None:
    backend, name = open_valkey(replace(nodes[0].options, prefix=prefix)), prefix + KEYS[0]
    assert put(backend, KEYS[0], blob(SIZE)) is Status.OK
    source, target = owner_of(nodes, name)
    move = Move(key_slot(name.encode()), source, target)
    assert get(backend, KEYS[0], SIZE) == blob(SIZE)
    move.carry(name)
    far = [bytearray(100), bytearray(100)]
    parts = [Part(0, memoryview(far[0])), Part(SIZE - 100, memoryview(far[1]))]
    assert backend.contains([KEYS[0]]) == [True]
    assert backend.get([GetItem(KEYS[0], parts), GetItem(KEYS[0], [])]) == [Status.OK, Status.OK]
    assert far == [blob(SIZE)[:100], blob(SIZE)[-100:]]
    assert get(backend, KEYS[0], SIZE + 1) is Status.SHORT
    assert put(backend, KEYS[0], b"other") is Status.EXISTS
    move.end()
    assert get(backend, KEYS[0], SIZE) == blob(SIZE)
    assert backend.delete([KEYS[0]]) == [True]
    assert put(backend, KEYS[0], b"again") is Status.OK
    assert not [name for name in backend.stats().counters if name.startswith("errors")]


def test_what_is_new_in_a_moving_slot_is_put_where_it_will_be(
    nodes: Sequence[ValkeyServer], open_valkey: Open, prefix: str
) -> None:
    backend, name = open_valkey(replace(nodes[0].options, prefix=prefix)), prefix + KEYS[1]
    source, target = owner_of(nodes, name)
    move = Move(key_slot(name.encode()), source, target)
    assert backend.contains([KEYS[1]]) == [False]
    assert get(backend, KEYS[1], SIZE) is Status.ABSENT
    assert put(backend, KEYS[1], blob(SIZE)) is Status.OK
    assert get(backend, KEYS[1], SIZE) == blob(SIZE)
    move.end()
    assert get(backend, KEYS[1], SIZE) == blob(SIZE)


def test_a_dead_node_takes_only_its_own_keys_along(
    fragile: Sequence[ValkeyServer], open_valkey: Open
) -> None:
    backend = open_valkey(fragile[0].options)
    for at, key in enumerate(KEYS[:20]):
        assert put(backend, key, blob(100, at)) is Status.OK
    prefix = fragile[0].options.prefix
    lost = [owner_of(fragile, prefix + key)[0] is fragile[1] for key in KEYS[:20]]
    fragile[1].kill()
    found = [get(backend, key, 100) for key in KEYS[:20]]
    assert [each is Status.ERROR for each in found] == lost
    assert all(each == blob(100, at) for at, each in enumerate(found) if not lost[at])
    with pytest.raises(ConnectionError):
        list(backend.scan())
    assert backend.delete_prefix("any/") is False


def test_a_server_that_is_no_cluster_says_so(server: ValkeyServer, open_valkey: Open) -> None:
    backend = open_valkey(replace(server.options, cluster=True))
    assert backend.probe([KEYS[0]]) == ([False], Status.ERROR)
    assert put(backend, KEYS[0], b"data") is Status.ERROR
    assert backend.stats().counters["errors_look"] >= 1


def test_a_cluster_that_is_late_is_found_without_waiting_for_the_next_look(open_valkey: Open) -> None:
    map_of_slots = [b"-CLUSTERDOWN not yet\r\n"]

    def answer(words: Sequence[bytes]) -> bytes:
        return map_of_slots[0] if words[0] == b"CLUSTER" else b":1\r\n"

    with Script(answer) as script:
        backend = open_valkey(replace(impatient(script), cluster=True, watch_seconds=3600.0))
        assert backend.probe([KEYS[0]]) == ([False], Status.ERROR)
        port = script.address.rpartition(":")[2].encode()
        map_of_slots[0] = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%b\r\n" % port
        wait_until(lambda: backend.contains([KEYS[0]])[0], "the map of the cluster", 10)


@pytest.mark.parametrize(
    "answer",
    [
        b"*0\r\n",
        b":1\r\n",
        b"*1\r\n:5\r\n",
        b"*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n*3\r\n:0\r\n:99999999999\r\n*2\r\n$1\r\na\r\n:1\r\n",
        b"*1\r\n*3\r\n:-5\r\n:-1\r\n*2\r\n$1\r\na\r\n:1\r\n",
    ],
    ids=["empty", "number", "short", "no port", "huge", "negative"],
)
def test_a_map_that_makes_no_sense_is_none(open_valkey: Open, answer: bytes) -> None:
    with Script(lambda words: answer) as script:
        backend = open_valkey(replace(impatient(script), cluster=True))
        assert backend.probe([KEYS[0]]) == ([False], Status.ERROR)
