"""What is particular to blobs in a bucket: what is asked for, what is remembered, what is swept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.s3 import S3Backend, S3Options
from sgkv.backends.s3.client import open_client, open_session
from sgkv.store.lookup import leading_run
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import S3Double
from sgkv.testing.s3.weed import SeaweedServer
from tests.backends.blobs import blob, get, key_of, put
from tests.backends.disks import Clock
from tests.s3.conftest import Open

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture(params=["general", "directory"])
def options(request: pytest.FixtureRequest, double: S3Double, prefix: str) -> S3Options:
    bucket = {"bucket": DIRECTORY_BUCKET} if request.param == "directory" else {}
    return double.options(prefix=prefix, list_seconds=3600.0, **bucket)


def asked(double: S3Double, method: str) -> int:
    """Requests for objects."""
    return sum(one == method and path.count("/") > 2 for one, path in double.mischief.requests)


def test_pages_far_apart_are_fetched_side_by_side_and_near_ones_together(
    double: S3Double, open_s3: Open, options: S3Options
) -> None:
    backend, data = open_s3(options), blob(4 * MIB)
    put(backend, key_of(1), data)
    offsets = [0, 4096, 70_000, 2 * MIB, 3 * MIB]
    buffers = [bytearray(4096) for _ in offsets]
    parts = [Part(at, memoryview(into)) for at, into in zip(offsets, buffers, strict=True)]
    assert backend.get([GetItem(key_of(1), parts)]) == [Status.OK]
    assert buffers == [data[at : at + 4096] for at in offsets]
    assert asked(double, "GET") == 3


def test_a_whole_chunk_is_one_request(double: S3Double, open_s3: Open, options: S3Options) -> None:
    backend, data = open_s3(options), blob(MIB)
    pages = [memoryview(bytearray(data))[at : at + 65_536] for at in range(0, MIB, 65_536)]
    assert backend.put([PutItem(key_of(1), pages)]) == [Status.OK]
    assert get(backend, key_of(1), MIB) == data
    assert (asked(double, "GET"), asked(double, "PUT")) == (1, 1)


def test_what_is_known_takes_no_request(double: S3Double, open_s3: Open, options: S3Options) -> None:
    backend = open_s3(options)
    assert backend.wait_listed(10)
    put(backend, key_of(1), b"here")
    backend.contains([key_of(2)])
    double.mischief.requests.clear()
    assert backend.contains([key_of(1), key_of(2)]) == [True, False]
    assert put(backend, key_of(1), b"again") is Status.EXISTS
    assert not double.mischief.requests


def test_knowledge_ages(double: S3Double, open_s3: Open, options: S3Options) -> None:
    clock = Clock()
    one, other = open_s3(options, clock=clock), open_s3(options)
    assert one.wait_listed(10)
    assert one.contains([key_of(1)]) == [False]
    put(other, key_of(1), b"new")
    assert one.contains([key_of(1)]) == [False]
    clock.now += options.absent_seconds
    assert one.contains([key_of(1)]) == [True]
    other.delete([key_of(1)])
    assert one.contains([key_of(1)]) == [True]
    clock.now += options.present_seconds
    assert one.contains([key_of(1)]) == [False]


def test_a_read_that_finds_nothing_ends_the_belief(open_s3: Open, options: S3Options) -> None:
    one, other = open_s3(options), open_s3(options)
    put(one, key_of(1), b"here")
    other.delete([key_of(1)])
    assert get(one, key_of(1), 4) is Status.ABSENT
    assert one.contains([key_of(1)]) == [False]
    assert put(one, key_of(1), b"anew") is Status.OK


def test_a_new_process_learns_by_listing(double: S3Double, open_s3: Open, options: S3Options) -> None:
    keys = [key_of(number) for number in range(30)]
    first = open_s3(options)
    assert first.put([PutItem(key, [memoryview(b"12345")]) for key in keys]) == [Status.OK] * 30
    second = open_s3(options)
    assert second.wait_listed(10)
    double.mischief.requests.clear()
    assert second.contains(keys) == [True] * 30
    assert not double.mischief.requests
    stats = second.stats()
    assert (stats.blobs, stats.used_bytes, stats.capacity_bytes) == (30, 150, 0)


def test_a_chain_of_400_takes_two_rounds_and_then_none(double: S3Double, open_s3: Open, prefix: str) -> None:
    options = double.options(prefix=prefix, list_seconds=None)
    keys = [key_of(number) for number in range(400)]
    writer = open_s3(options)
    assert set(writer.put([PutItem(key, [memoryview(b"1")]) for key in keys[:277]])) == {Status.OK}
    reader, rounds = open_s3(options), []

    def probe(some: list[str]) -> list[bool]:
        rounds.append(len(some))
        return reader.contains(some)

    assert leading_run(probe, keys) == 277
    assert len(rounds) <= 2
    double.mischief.requests.clear()
    assert leading_run(probe, keys) == 277
    assert not double.mischief.requests


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_what_is_older_than_its_life_is_swept(
    double: S3Double, open_s3: Open, prefix: str, plane: str
) -> None:
    options = double.options(DIRECTORY_BUCKET, prefix=prefix, plane=plane)
    keeper = open_s3(options, ttl=3600.0)
    keeper.put([PutItem(key_of(number), [memoryview(b"old")]) for number in range(5)])
    assert keeper.relist(10)
    assert len(list(keeper.scan())) == 5
    double.express.skew = 2.0  # its Date counts whole seconds only
    sweeper = open_s3(options, ttl=1e-6)
    assert sweeper.wait_listed(10)
    assert not list(keeper.scan())
    assert sweeper.stats().counters["swept"] == 5


def test_a_capacity_counts_what_others_wrote(open_s3: Open, options: S3Options) -> None:
    other = open_s3(options)
    other.put([PutItem(key_of(number), [memoryview(bytes(1000))]) for number in range(8)])
    backend = open_s3(options, capacity=8000)
    assert backend.wait_listed(10)
    assert put(backend, key_of(100), bytes(2000)) is Status.OK
    assert sum(info.size for info in other.scan()) == 8000


def test_no_more_keys_are_remembered_than_allowed(double: S3Double, open_s3: Open, prefix: str) -> None:
    backend = open_s3(double.options(prefix=prefix, known_keys=10))
    keys = [key_of(number) for number in range(25)]
    assert set(backend.put([PutItem(key, [memoryview(b"1")]) for key in keys])) == {Status.OK}
    assert backend.stats().blobs == 10
    assert backend.contains(keys) == [True] * 25


def test_a_large_prefix_is_removed_in_thousands(weed: SeaweedServer, open_s3: Open, prefix: str) -> None:
    backend = open_s3(weed.options(prefix=prefix, list_seconds=None))
    items = [PutItem(f"one/c/{number}", [memoryview(b"1")]) for number in range(1100)]
    for start in range(0, len(items), 100):
        assert set(backend.put(items[start : start + 100])) == {Status.OK}
    assert put(backend, "other/c/1", b"1") is Status.OK
    assert backend.delete_prefix("one/")
    assert [info.key for info in backend.scan()] == ["other/c/1"]


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_encryption_is_asked_for_where_it_may_be(
    double: S3Double, open_s3: Open, options: S3Options, plane: str
) -> None:
    """The double refuses the header in a directory bucket, as AWS does."""
    options = replace(options, encryption="AES256", plane=plane)
    assert put(open_s3(options), key_of(1), b"secret") is Status.OK
    if options.bucket != DIRECTORY_BUCKET:
        client = open_client(open_session(options), options, attempts=1, connections=1)
        found = client.head_object(Bucket=options.bucket, Key=options.prefix + key_of(1))
        assert found["ServerSideEncryption"] == "AES256"


def test_without_conditional_writes_the_key_is_still_looked_for(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    options = double.options(prefix=prefix, list_seconds=None, conditional=False)
    first, second = open_s3(options), open_s3(options)
    assert put(first, key_of(1), b"first") is Status.OK
    assert put(second, key_of(1), b"other") is Status.EXISTS


def test_a_bucket_that_is_not_there_is_an_error_of_each_call(double: S3Double, open_s3: Open) -> None:
    backend = open_s3(double.options("sgkv-no-such-bucket"))
    assert put(backend, key_of(1), b"x") is Status.ERROR
    assert get(backend, key_of(1), 1) is Status.ERROR


def test_impossible_settings_are_refused(double: S3Double) -> None:
    with pytest.raises(ValueError, match="capacity"):
        S3Backend(double.options(), capacity=0)
    with pytest.raises(ValueError, match="prefix"):
        double.options(prefix="no-slash")
    with pytest.raises(ValueError, match="go together"):
        double.options(secret_key=None)


def test_secrets_are_not_shown(double: S3Double) -> None:
    shown = repr(double.options(secret_key="hidden one", session_token="hidden two"))
    assert "hidden" not in shown
