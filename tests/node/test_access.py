"""Who may attach, whose pages they see, and how much of the memory they may take."""

import json
import os

import pytest

from sgkv.backends.deadline import Deadline
from sgkv.chunk.layout import Order, PageLayout
from sgkv.node import quotas, server
from sgkv.node.access import Access, DeniedError, Grant, Peer, Tenant
from sgkv.node.memory import map_region
from sgkv.node.service import Rules
from sgkv.node.status import report
from sgkv.node.wire import WireError
from sgkv.reasons import MissReason
from sgkv.store.span import Span
from tests.node.conftest import Pool
from tests.store.conftest import MIB, PAGE_BYTES, chain, found_in, layout, namespace, put, random_pages, read

OWN, OTHER = Peer(1, os.geteuid(), 0), Peer(1, os.geteuid() + 1, 0)
TENANTS = {"red": Tenant("red secret"), "blue": Tenant("blue secret", quota=8 * 8192)}


def test_another_user_is_let_in_only_where_named():
    with pytest.raises(DeniedError, match=r"node\.users"):
        Access().admit(OTHER, "")
    Access(users=frozenset({OTHER.uid})).admit(OTHER, "")


@pytest.mark.parametrize("token", ["", "wrong", "right but longer"])
def test_a_wrong_token_is_refused(token):
    with pytest.raises(DeniedError, match=r"node\.token"):
        Access(token="right").admit(OWN, token)
    Access(token="right").admit(OWN, "right")


def test_a_token_speaks_for_its_own_tenants():
    grant = Access(tenants=TENANTS).admit(OWN, "red secret")
    grant.require("red")
    for tenant in ("blue", "unknown"):
        with pytest.raises(DeniedError, match=tenant):
            grant.require(tenant)
    with pytest.raises(DeniedError):
        Access(tenants=TENANTS).admit(OWN, "")


def test_the_daemons_own_token_speaks_for_all_tenants():
    grant = Access(token="the operator's", tenants=TENANTS).admit(OWN, "the operator's")
    assert all(map(grant.covers, TENANTS))


def test_a_tenant_is_told_of_itself_alone(node_rig):
    node = node_rig.node(rules=Rules(Access(tenants=TENANTS)))
    for name in TENANTS:
        store = node_rig.attach(node, token=f"{name} secret")
        assert all(put(store.open(namespace(tenant=name), layout()), chain(2), random_pages(2)))
    told = json.loads(report(node.service, node.server.conversations, 0.0, Grant(frozenset({"red"}))))
    assert list(told["tenants"]) == ["red"]
    assert len(told["connections"]) == 1


def test_the_socket_is_its_owners(node_rig):
    node = node_rig.node()
    assert node.path.stat().st_mode & 0o777 == 0o600
    shared = node_rig.node(rules=Rules(Access(users=frozenset({OTHER.uid}))))
    assert shared.path.stat().st_mode & 0o777 == 0o666
    shared.server.follow(Rules())
    assert shared.path.stat().st_mode & 0o777 == 0o600


def test_a_refused_engine_misses_and_comes_in_when_the_rules_are_changed(node_rig, monkeypatch):
    monkeypatch.setattr(server, "peer_of", lambda _sock: OTHER)
    node = node_rig.node()
    store = node_rig.attach(node, retry=0.05)
    session = store.open(namespace(), layout())
    assert read(session, chain(2))[0] == [MissReason.NODE_AWAY] * 2
    assert node.store.counters.get("refused_connections") >= 1
    node.service.rules = Rules(Access(users=frozenset({OTHER.uid})))
    node_rig.wait(lambda: not store.away)
    assert put(session, chain(2), random_pages(2)) == [True] * 2


def test_a_tenant_cannot_open_anothers_namespace(node_rig):
    node = node_rig.node(rules=Rules(Access(tenants=TENANTS)))
    red = node_rig.attach(node, token="red secret")
    mine = red.open(namespace(tenant="red"), layout())
    assert put(mine, chain(2), random_pages(2)) == [True] * 2
    stolen = red.open(namespace(tenant="blue"), layout())
    assert put(stolen, chain(2), random_pages(2)) == [False] * 2
    assert read(stolen, chain(2))[0] == [MissReason.NODE_AWAY] * 2
    assert found_in(mine, chain(2)).pages == 2, "a refusal takes nothing else away"


def test_a_tenant_past_its_quota_loses_its_own_oldest_pages(node_rig):
    node = node_rig.node(rules=Rules(Access(tenants=TENANTS)))
    red = node_rig.attach(node, token="red secret").open(namespace(tenant="red"), layout())
    blue = node_rig.attach(node, token="blue secret").open(namespace(tenant="blue"), layout())
    put(red, chain(20), random_pages(20))
    for seed in range(6):
        put(blue, chain(4, seed), random_pages(4))
        node.store.flush(10)
        assert node.service.quotas.used()["blue"] <= 8 * 8192
    arena = node.service.arena
    assert arena.contains([f"{red.namespace.digest}.layer/p/{h[:2]}/{h}" for h in chain(20)]) == [True] * 20
    assert node.service.quotas.used()["red"] == 20 * 8192
    assert found_in(blue, chain(4, 5)).pages == 4


def test_a_tenant_that_only_reads_keeps_to_its_quota_too(node_rig):
    """What it reads from slower tiers goes into memory, and not at the cost of others."""
    node = node_rig.node(rules=Rules(Access(tenants=TENANTS)))
    blue = node_rig.attach(node, token="blue secret").open(namespace(tenant="blue"), layout())
    for seed in range(6):
        put(blue, chain(4, seed), random_pages(4))
        node.store.flush(10)
    for seed in range(6):
        assert read(blue, chain(4, seed))[0] == [None] * 4
        assert node.service.quotas.used()["blue"] <= 8 * 8192


def test_a_write_larger_than_its_quota_is_not_stored_and_counted(node_rig):
    node = node_rig.node(rules=Rules(namespace_quota=4 * PAGE_BYTES))
    session = node_rig.attach(node).open(namespace(), layout())
    assert put(session, chain(5), random_pages(5)) == [False] * 5
    assert node.store.counters.get("over_quota_pages") == 5


def test_engines_of_other_chunks_are_refused(node_rig):
    session = node_rig.attach(node_rig.node()).open(namespace(chunk_tokens=128), layout())
    assert session.lookup(Span(chain(2)), Deadline(5)).reason is MissReason.NODE_AWAY


def test_memory_of_another_user_must_not_be_able_to_shrink():
    pool = Pool(4)
    map_region(pool.descriptor, 0, 4 * PAGE_BYTES, trusted=True)
    with pytest.raises(WireError, match="sealed"):
        map_region(pool.descriptor, 0, 4 * PAGE_BYTES, trusted=False)
    with pytest.raises(WireError, match="shorter"):
        map_region(pool.descriptor, 0, 1 << 30, trusted=True)


def test_the_daemons_own_memory_cannot_be_shrunk_by_an_engine(node_rig):
    node = node_rig.node(cpu_bytes=MIB)
    with pytest.raises(PermissionError):
        os.ftruncate(node.service.descriptor, 4096)


def test_connections_beyond_the_limit_are_refused_and_the_others_go_on(node_rig):
    node = node_rig.node(rules=Rules(connections=1))
    first, late = (node_rig.attach(node, retry=0.05).open(namespace(), layout()) for _ in range(2))
    assert put(first, chain(2), random_pages(2)) == [True] * 2
    assert read(late, chain(2))[0] == [MissReason.NODE_AWAY] * 2
    assert read(first, chain(2))[0] == [None] * 2
    node_rig.stores[0].close()
    node_rig.wait(lambda: not node_rig.stores[1].away)
    assert read(late, chain(2))[0] == [None] * 2


def test_pages_that_no_memory_could_hold_are_refused(node_rig):
    session = node_rig.attach(node_rig.node(cpu_bytes=MIB)).open(
        namespace(), PageLayout(Order.OPAQUE, "float32", 1, 1, 1, (2 * MIB,))
    )
    assert session.lookup(Span(chain(1)), Deadline(5)).reason is MissReason.NODE_AWAY


def test_namespaces_that_hold_nothing_are_forgotten(node_rig, monkeypatch):
    monkeypatch.setattr(quotas, "_MANY", 4)
    node = node_rig.node()
    store = node_rig.attach(node)
    sessions = [store.open(namespace(epoch=str(number)), layout()) for number in range(20)]
    put(sessions[0], chain(2), random_pages(2))
    for session in sessions:
        found_in(session, chain(1))
    assert len(node.service.quotas._groups["t"]) <= 5
    assert node.service.quotas.used()["t"] == 2 * 8192
