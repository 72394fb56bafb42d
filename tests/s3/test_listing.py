"""Listings that cannot be trusted, and what is never swept or evicted by one."""

from __future__ import annotations

import pytest

from sgkv.backends.base import Status
from sgkv.backends.s3 import S3Backend
from sgkv.backends.s3.client import open_client, open_session
from sgkv.keys import is_blob_key
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import S3Double
from sgkv.testing.s3.mischief import Trouble
from tests.backends.blobs import NAMESPACE, key_of, put
from tests.s3.conftest import Open

pytestmark = pytest.mark.slow

KEY = key_of(1)
NO_LISTINGS = [
    b"",
    b"<html><body>Please log in</body></html>",
    b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Size>1</Size></Contents></ListBucketResult>",
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Size>big</Size></Contents></ListBucketResult>",
]


def spoil_listings(double: S3Double, body: bytes) -> None:
    def choose(method: str, path: str) -> Trouble | None:
        return Trouble(body=body) if method == "GET" and path.count("/") <= 2 else None

    double.mischief.choose = choose


@pytest.fixture
def backend(double: S3Double, open_s3: Open, prefix: str) -> S3Backend:
    """Lists when it is told to, and holds a blob under `KEY`."""
    backend = open_s3(double.options(prefix=prefix, list_seconds=3600.0))
    assert backend.wait_listed(10)
    assert put(backend, KEY, b"here") is Status.OK
    return backend


@pytest.mark.parametrize(
    "body",
    NO_LISTINGS,
    ids=["empty", "a web page", "no way on", "a row without a key", "a size that is none"],
)
def test_what_is_no_listing_is_not_an_empty_bucket(backend: S3Backend, double: S3Double, body: bytes) -> None:
    spoil_listings(double, body)
    with pytest.raises(ConnectionError):
        list(backend.scan())
    assert backend.delete_prefix(f"{NAMESPACE}/") is False
    assert backend.relist(10)
    assert backend.stats().blobs == 1
    assert backend.contains([KEY]) == [True]


def test_a_removal_that_was_refused_says_why(
    backend: S3Backend, double: S3Double, caplog: pytest.LogCaptureFixture
) -> None:
    def choose(method: str, path: str) -> Trouble | None:
        return Trouble(status=403, code="AccessDenied") if method == "POST" else None

    double.mischief.choose = choose
    assert backend.delete_prefix(f"{NAMESPACE}/") is False
    assert "AccessDenied" in caplog.text
    assert [info.key for info in backend.scan()] == [KEY]


@pytest.mark.parametrize("answer", [Trouble(body=b""), Trouble(status=200)], ids=["empty", "an error within"])
def test_a_removal_of_which_nothing_is_said_is_none(
    double: S3Double, open_s3: Open, prefix: str, answer: Trouble
) -> None:
    options = double.options(DIRECTORY_BUCKET, prefix=prefix)
    keeper = open_s3(options)
    assert put(keeper, KEY, b"old") is Status.OK
    double.express.skew = 2.0  # its Date counts whole seconds only
    double.mischief.choose = lambda method, path: answer if method == "POST" else None
    assert keeper.delete_prefix(f"{NAMESPACE}/") is False
    assert keeper.contains([KEY]) == [True]
    sweeper = open_s3(options, ttl=1e-6)
    assert sweeper.wait_listed(10)
    assert "swept" not in sweeper.stats().counters


def test_a_sweep_goes_by_the_clock_that_the_times_are_of(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    """A node whose own clock is ahead would otherwise delete what others still use."""
    double.express.skew = -600.0  # our clock is ahead by as much
    options = double.options(DIRECTORY_BUCKET, prefix=prefix)
    assert put(open_s3(options), KEY, b"young") is Status.OK
    sweeper = open_s3(options, ttl=1e-6)
    assert sweeper.relist(10)
    assert [info.key for info in sweeper.scan()] == [KEY]


@pytest.mark.parametrize("settings", [{"ttl": 1e-6}, {"capacity": 1000}], ids=["ttl", "capacity"])
def test_other_peoples_objects_are_left_alone(
    double: S3Double, open_s3: Open, prefix: str, settings: dict[str, float]
) -> None:
    options = double.options(DIRECTORY_BUCKET, prefix=prefix)
    client = open_client(open_session(options), options, attempts=1, connections=1)
    client.put_object(Bucket=DIRECTORY_BUCKET, Key=f"{prefix}{NAMESPACE}/report.csv", Body=bytes(900))
    client.close()
    double.express.skew = 2.0  # its Date counts whole seconds only
    backend = open_s3(options, ours=is_blob_key, **settings)
    assert backend.wait_listed(10)
    assert put(backend, KEY, bytes(500)) is Status.OK
    assert put(backend, key_of(2), bytes(500)) is Status.OK
    assert put(backend, key_of(3), bytes(500)) is Status.OK
    assert backend.relist(10)
    assert f"{NAMESPACE}/report.csv" in [info.key for info in backend.scan()]
