"""Stores with a server below memory: what one node writes another one reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sgkv.backends.valkey import ValkeyOptions
from sgkv.config import ConfigError, load, resolve
from sgkv.doctor.finding import Level
from sgkv.doctor.remote import examine
from sgkv.keys import chunk_keys
from sgkv.reasons import MissReason
from sgkv.store.build import build_store
from sgkv.store.store import Store
from sgkv.testing.valkey import ValkeyServer
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import get
from tests.store.conftest import chain, found_in, joined, layout, namespace, put, random_pages, read
from tests.valkey.conftest import Open

PATIENT = {"contains": 10, "get": 20, "put": 20}
Node = Callable[..., Store]


@pytest.fixture
def node(prefix: str) -> Iterator[Node]:
    """A store with an empty cpu tier of its own, over a server that all nodes of a test share."""
    opened: list[Store] = []

    def start(options: ValkeyOptions, *, ttl: object = None, **valkey: object) -> Store:
        far = {
            "type": "valkey", "address": options.address, "cluster": options.cluster, "prefix": prefix,
            "deadlines": PATIENT, **valkey,
        }  # fmt: skip
        tiers = [{"type": "cpu", "capacity": "8MiB"}, far]
        settings = {"tiers": tiers, "chunk_tokens": 64, "ttl": ttl, "write_behind": {"tail_delay": 0.05}}
        opened.append(build_store(resolve(load(settings, environ={}).config)))
        return opened[-1]

    yield start
    for store in opened:
        store.close()


def written(store: Store, count: int, ttl: object = None) -> tuple[list[bytes], list[bytes]]:
    hashes, pages = chain(count), random_pages(count)
    assert all(put(store.open(namespace(), layout()), hashes, pages))
    assert store.flush(30)
    return hashes, pages


@pytest.mark.parametrize("clustered", [False, True])
def test_another_node_reads_what_one_wrote(
    server: ValkeyServer, nodes: Sequence[ValkeyServer], node: Node, clustered: bool
) -> None:
    options = nodes[0].options if clustered else server.options
    hashes, pages = written(node(options), 10)
    second = node(options)
    session = second.open(namespace(), layout())
    assert found_in(session, hashes).pages == 10
    assert read(session, hashes) == ([None] * 10, joined(pages))
    assert second.stats().counters["hit_pages"]["valkey"] == 10
    assert second.flush(10)
    assert read(session, hashes) == ([None] * 10, joined(pages))


def test_a_chain_is_looked_up_in_one_round_trip_and_its_holes_are_seen(
    server: ValkeyServer, node: Node, open_valkey: Open, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes, _ = written(node(server.options), 40)
    store = node(server.options)
    session, asked = store.open(namespace(), layout()), []
    inner = store.tiers[-1].backend.inner
    probe = inner.probe
    monkeypatch.setattr(
        inner, "probe", lambda keys, deadline: asked.append(len(keys)) or probe(keys, deadline)
    )
    assert found_in(session, hashes).pages == 40
    chunks = asked[0]
    assert asked == [chunks]
    blobs = open_valkey(replace(server.options, prefix=prefix))
    hole = chunk_keys(namespace().digest, hashes[40 // chunks - 1 :: 40 // chunks])[chunks // 2 - 1]
    assert blobs.delete([hole]) == [True]
    assert found_in(node(server.options).open(namespace(), layout()), hashes).pages == 40 // 2 - 40 // chunks


def test_other_weights_share_nothing(server: ValkeyServer, node: Node) -> None:
    hashes, _ = written(node(server.options), 4)
    other = node(server.options).open(namespace(weights="other"), layout())
    assert found_in(other, hashes).pages == 0


def test_wrong_bytes_are_misses_and_taken_away(
    server: ValkeyServer, node: Node, open_valkey: Open, prefix: str
) -> None:
    hashes, pages = written(node(server.options), 4)
    blobs = open_valkey(replace(server.options, prefix=prefix))
    (key,) = [info.key for info in blobs.scan() if "/c/" in info.key]
    server.say("SETRANGE", prefix + key, 5000, "flipped")
    session = node(server.options).open(namespace(), layout())
    reasons, found = read(session, hashes)
    assert MissReason.CORRUPT in reasons
    rows = zip(reasons, found, joined(pages), strict=True)
    assert all(reason is not None or got == want for reason, got, want in rows)
    wait_until(lambda: not blobs.contains([key])[0], "the blob to be taken away", 10)


def test_a_dead_server_is_a_shorter_hit(victim: ValkeyServer, node: Node) -> None:
    hashes, pages = written(node(victim.options), 4)
    victim.kill()
    store = node(victim.options, deadlines={"contains": 0.2, "get": 1, "put": 1})
    session = store.open(namespace(), layout())
    for seed in range(1, 12):
        assert found_in(session, chain(8, seed)).pages == 0
    assert store.stats().tiers["valkey"].counters["breaker_opened"] >= 1
    assert all(put(session, hashes, pages))
    assert read(session, hashes) == ([None] * 4, joined(pages))


def test_what_outlives_its_ttl_is_gone_from_the_server(server: ValkeyServer, node: Node) -> None:
    store = node(server.options, ttl="1s")
    written(store, 4)
    blobs = store.tiers[-1].backend
    wait_until(lambda: not list(blobs.scan()), "the expiry", 10)


def test_clearing_removes_the_namespace_from_the_server(server: ValkeyServer, node: Node) -> None:
    store = node(server.options)
    hashes, _ = written(store, 8)
    kept = store.open(namespace(weights="kept"), layout())
    assert all(put(kept, hashes, random_pages(8)))
    assert store.flush(30)
    session = store.open(namespace(), layout())
    session.clear()
    assert found_in(session, hashes).pages == 0
    assert found_in(kept, hashes).pages == 8
    assert {info.key.partition("/")[0] for info in store.tiers[-1].backend.scan()} == {
        namespace(weights="kept").digest
    }


def test_a_password_comes_from_a_file_or_the_environment_and_is_not_shown(tmp_path: Path) -> None:
    secret = "open sesame"
    (tmp_path / "password").write_text(secret + "\n")
    file = tmp_path / "sgkv.json"
    with ValkeyServer(tmp_path / "closed", settings={"requirepass": secret}, password=secret) as running:
        tier = {"type": "valkey", "address": running.options.address}
        sources = [
            ({**tier, "password_file": str(tmp_path / "password")}, {}),
            (tier, {"SGKV__TIERS__0__PASSWORD": secret}),
        ]
        for settings, environ in sources:
            file.write_text(json.dumps({"tiers": [settings]}))
            config = load(file=file, environ=environ)
            assert secret not in repr(config) + config.config.model_dump_json()
            store = build_store(resolve(config.config))
            assert get(store.tiers[0].backend, "a/c/1", 1).value == "absent"
            store.close()


@pytest.mark.parametrize("clustered", [False, True])
def test_the_doctor_says_what_a_server_is_like(
    server: ValkeyServer, nodes: Sequence[ValkeyServer], clustered: bool
) -> None:
    options = nodes[0].options if clustered else server.options
    tier = {"type": "valkey", "address": options.address, "cluster": clustered}
    findings = list(examine(resolve(load({"tiers": [tier]}, environ={}).config)))
    assert {finding.level for finding in findings} == {Level.OK, Level.NOTE}
    assert findings[-1].what == "keeps a blob"
    said = "\n".join(finding.what for finding in findings)
    for one in nodes if clustered else [server]:
        assert f"{one.options.address}: " in said
        assert f"{one.options.address} has no maxmemory" in said


def test_the_doctor_says_that_nobody_answers() -> None:
    tier = {"type": "valkey", "address": "127.0.0.1:9"}
    (finding,) = examine(resolve(load({"tiers": [tier]}, environ={}).config))
    assert finding.level is Level.PROBLEM
    assert "127.0.0.1:9" in finding.what


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"password": "x", "password_file": "/x"}, "set one of them"),
        ({"username": "x"}, "password"),
        ({"tls_cert": "/x"}, "tls_key"),
        ({"tls_ca": "/x"}, "tls: true"),
        ({"cluster": True, "database": 1}, "database 0"),
        ({"capacity": "10%"}, "write a size"),
        ({"address": "somewhere"}, "address"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict, word: str) -> None:
    tier = {"type": "valkey", "address": "127.0.0.1:6379", **settings}
    with pytest.raises(ConfigError, match=word):
        load({"tiers": [tier]}, environ={})
