"""Stores with a bucket below memory and disk: what one node writes another one reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sgkv.backends.wrapper import Wrapper
from sgkv.config import load, resolve
from sgkv.reasons import MissReason
from sgkv.store.build import build_store
from sgkv.store.store import Store
from sgkv.testing.s3 import BUCKET, DIRECTORY_BUCKET, tier_settings
from sgkv.testing.s3.double import S3Double
from sgkv.testing.s3.mischief import Trouble
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.waiting import wait_until
from tests.store.conftest import chain, found_in, joined, layout, namespace, put, random_pages, read

pytestmark = pytest.mark.slow

PATIENT = {"contains": 10, "get": 20, "put": 20}
Node = Callable[..., Store]


@pytest.fixture
def node(tmp_path: Path, prefix: str) -> Iterator[Node]:
    """A store with empty tiers of its own, over a bucket that all nodes of a test share."""
    opened: list[Store] = []

    def start(endpoint: str, bucket: str = BUCKET, *, ttl: object = None, **s3: object) -> Store:
        far = tier_settings(endpoint, bucket, prefix=prefix, **{"deadlines": PATIENT, **s3})
        disk = {"type": "disk", "path": str(tmp_path / str(len(opened))), "capacity": "64MiB"}
        tiers = [{"type": "cpu", "capacity": "8MiB"}, {**disk, "deadlines": PATIENT, "min_free": 0}, far]
        settings = {"tiers": tiers, "chunk_tokens": 64, "ttl": ttl, "write_behind": {"tail_delay": 0.05}}
        opened.append(build_store(resolve(load(settings, environ={}).config)))
        return opened[-1]

    yield start
    for store in opened:
        store.close()


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_another_node_reads_what_one_wrote(weed: SeaweedServer, node: Node, plane: str) -> None:
    hashes, pages = chain(10), random_pages(10)
    first = node(weed.endpoint, plane=plane)
    assert all(put(first.open(namespace(), layout()), hashes, pages))
    assert first.flush(30)
    second = node(weed.endpoint, plane=plane)
    session = second.open(namespace(), layout())
    assert found_in(session, hashes).pages == 10
    assert read(session, hashes) == ([None] * 10, joined(pages))
    assert second.stats().counters["hit_pages"]["s3"] == 10
    assert second.flush(10)
    assert read(session, hashes) == ([None] * 10, joined(pages))


def test_a_directory_bucket_serves_a_fleet_whose_sessions_are_revoked(double: S3Double, node: Node) -> None:
    hashes, pages = chain(12), random_pages(12)
    first = node(double.endpoint, DIRECTORY_BUCKET)
    assert all(put(first.open(namespace(), layout()), hashes, pages))
    assert first.flush(30)
    double.express.revoke()
    session = node(double.endpoint, DIRECTORY_BUCKET).open(namespace(), layout())
    double.express.revoke()
    assert found_in(session, hashes).pages == 12
    assert read(session, hashes) == ([None] * 12, joined(pages))


def test_other_weights_share_nothing(double: S3Double, node: Node) -> None:
    hashes = chain(4)
    first = node(double.endpoint)
    assert all(put(first.open(namespace(), layout()), hashes, random_pages(4)))
    assert first.flush(30)
    other = node(double.endpoint).open(namespace(weights="other"), layout())
    assert found_in(other, hashes).pages == 0


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Trouble(status=500), MissReason.TIER_ERROR),
        (Trouble(status=503, code="SlowDown"), MissReason.TIER_ERROR),
        (Trouble(half=True), MissReason.TIER_ERROR),
        (Trouble(flip=True), MissReason.CORRUPT),
    ],
    ids=["500", "503", "half a body", "wrong bytes"],
)
def test_bad_answers_are_misses_with_a_reason(
    double: S3Double, node: Node, trouble: Trouble, reason: MissReason
) -> None:
    hashes, pages = chain(4), random_pages(4)
    first = node(double.endpoint)
    assert all(put(first.open(namespace(), layout()), hashes, pages))
    assert first.flush(30)
    session = node(double.endpoint).open(namespace(), layout())
    double.mischief.choose = lambda method, path: trouble if method == "GET" and "/c/" in path else None
    reasons, found = read(session, hashes)
    assert reason in reasons
    assert all(
        got is not None or page == want for got, page, want in zip(reasons, found, joined(pages), strict=True)
    )


def test_a_bucket_that_is_gone_costs_a_lookup_next_to_nothing(double: S3Double, node: Node) -> None:
    store = node("http://127.0.0.1:9", deadlines={"contains": 0.2, "get": 1, "put": 1})
    session = store.open(namespace(), layout())
    hashes, pages = chain(8), random_pages(8)
    for seed in range(1, 12):
        assert found_in(session, chain(8, seed)).pages == 0
    assert store.stats().tiers["s3"].counters["breaker_opened"] >= 1
    assert all(put(session, hashes, pages))
    assert read(session, hashes) == ([None] * 8, joined(pages))


def test_what_outlives_its_ttl_is_a_miss_and_swept(double: S3Double, node: Node) -> None:
    hashes = chain(4)
    first = node(double.endpoint, ttl="1s")
    assert all(put(first.open(namespace(), layout()), hashes, random_pages(4)))
    assert first.flush(30)
    bucket = first.tiers[-1].backend
    while isinstance(bucket, Wrapper):
        bucket = bucket.inner
    assert len(list(bucket.scan())) > 0
    wait_until(lambda: bucket.relist(10) and not list(bucket.scan()), "the sweep", 10)


def test_clearing_removes_the_namespace_from_the_bucket(double: S3Double, node: Node) -> None:
    hashes = chain(8)
    store = node(double.endpoint)
    session, kept = store.open(namespace(), layout()), store.open(namespace(weights="kept"), layout())
    for one in (session, kept):
        assert all(put(one, hashes, random_pages(8)))
    assert store.flush(30)
    session.clear()
    assert found_in(session, hashes).pages == 0
    assert found_in(kept, hashes).pages == 8
    assert {info.key.partition("/")[0] for info in store.tiers[-1].backend.scan()} == {
        namespace(weights="kept").digest
    }
