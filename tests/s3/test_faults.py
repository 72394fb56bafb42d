"""A server that misbehaves: each read is right or says why not, and the tier is then left alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import GetItem, Part, PutItem, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.guard import Guarded
from sgkv.backends.s3 import S3Backend
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import S3Double, options_for
from sgkv.testing.s3.mischief import Trouble
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, get, key_of, put
from tests.s3.conftest import Open

pytestmark = pytest.mark.slow

KEY, SIZE = key_of(1), 300_000
DATA = blob(SIZE)
QUICK = {
    "attempts": 2,
    "read_timeout": 0.5,
    "list_seconds": None,
    "present_seconds": 0.0,
    "absent_seconds": 0.0,
}


@pytest.fixture(params=["thin", "boto3"])
def backend(request: pytest.FixtureRequest, double: S3Double, open_s3: Open, prefix: str) -> S3Backend:
    """Holds `DATA` under `KEY`, and remembers nothing."""
    backend = open_s3(double.options(prefix=prefix, plane=request.param, **QUICK))
    assert put(backend, KEY, DATA) is Status.OK
    return backend


def only(method: str, trouble: Trouble, times: int = 1_000_000):
    """Trouble for the first so many requests of a kind."""
    left = iter(range(times))

    def choose(asked: str, path: str) -> Trouble | None:
        return trouble if asked == method and next(left, None) is not None else None

    return choose


def read_checked(backend: S3Backend) -> Status:
    into = bytearray(SIZE)
    return backend.get([GetItem(KEY, [Part(0, memoryview(into))], lambda: into == DATA)])[0]


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (Trouble(status=500), Status.ERROR),
        (Trouble(status=503, code="SlowDown"), Status.ERROR),
        (Trouble(status=403, code="AccessDenied"), Status.ERROR),
        (Trouble(status=404, code="NoSuchKey"), Status.ABSENT),
        (Trouble(status=404, code="NoSuchBucket"), Status.ERROR),
        (Trouble(half=True), Status.ERROR),
        (Trouble(flip=True), Status.CORRUPT),
    ],
    ids=["500", "503", "403", "404", "no bucket", "half a body", "a flipped bit"],
)
def test_a_bad_read_says_so(backend: S3Backend, double: S3Double, trouble: Trouble, status: Status) -> None:
    double.mischief.choose = only("GET", trouble)
    assert read_checked(backend) is status
    double.mischief.choose = lambda method, path: None
    assert read_checked(backend) is Status.OK


@pytest.mark.parametrize(
    "trouble", [Trouble(status=500), Trouble(status=503, code="SlowDown"), Trouble(half=True)]
)
def test_what_passes_is_tried_again(backend: S3Backend, double: S3Double, trouble: Trouble) -> None:
    double.mischief.choose = only("GET", trouble, times=1)
    assert read_checked(backend) is Status.OK
    assert backend.stats().counters["retries"] == 1


def test_a_conflict_of_writers_is_tried_again(backend: S3Backend, double: S3Double) -> None:
    double.mischief.choose = only("PUT", Trouble(status=409, code="ConditionalRequestConflict"), times=1)
    assert put(backend, key_of(2), DATA) is Status.OK


def test_a_write_that_lost_the_race_exists(backend: S3Backend, double: S3Double) -> None:
    double.mischief.choose = only("PUT", Trouble(status=412, code="PreconditionFailed"))
    assert put(backend, key_of(2), DATA) is Status.EXISTS


def test_pieces_of_two_objects_do_not_make_one(backend: S3Backend, double: S3Double) -> None:
    etags = iter(['"a"', '"b"'])
    double.mischief.choose = lambda method, path: Trouble(etag=next(etags)) if method == "GET" else None
    parts = [Part(0, memoryview(bytearray(10))), Part(SIZE - 10, memoryview(bytearray(10)))]
    assert backend.get([GetItem(KEY, parts)]) == [Status.ERROR]


def test_a_silent_server_costs_no_more_than_the_timeouts(backend: S3Backend, double: S3Double) -> None:
    answer = threading.Event()
    double.mischief.choose = only("HEAD", Trouble(until=answer))
    found, status = backend.probe([KEY], Deadline(0.2))
    assert (found, status) == ([False], Status.TIMEOUT)
    found, status = backend.probe([KEY])
    assert found == [False]
    assert status in (Status.ERROR, Status.TIMEOUT)
    answer.set()


def test_nothing_lands_after_the_caller_gave_up(backend: S3Backend, double: S3Double) -> None:
    answer = threading.Event()
    double.mischief.choose = only("GET", Trouble(until=answer))
    into = bytearray(SIZE)
    assert backend.get([GetItem(KEY, [Part(0, memoryview(into))])], Deadline(0.1)) == [Status.TIMEOUT]
    answer.set()
    backend.close()
    assert into == bytes(SIZE)


def test_a_write_given_up_on_its_way_is_never_published(double: S3Double, open_s3: Open, prefix: str) -> None:
    """All but its end is on its way when the caller takes the buffers back."""
    backend = open_s3(double.options(prefix=prefix, **QUICK))
    deadline = Deadline(30.0)

    class GivingUp(list):
        """Buffers whose caller is gone when the last of them has been reached."""

        def __iter__(self) -> Iterator[memoryview]:
            yield from super().__iter__()
            if self.armed:
                deadline.cancel()

    buffers = GivingUp([memoryview(DATA)])
    buffers.armed = False

    def arm() -> None:
        buffers.armed = True

    assert backend.put([PutItem(KEY, buffers, arm)], deadline) == [Status.TIMEOUT]
    assert backend.contains([KEY]) == [False]


def test_a_bulk_deletion_that_hangs_keeps_no_write_waiting(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    backend = open_s3(double.options(prefix=prefix, **QUICK, concurrency=1))
    assert put(backend, "old/c/1", DATA) is Status.OK
    asked, answer = threading.Event(), threading.Event()

    def choose(method: str, path: str) -> Trouble | None:
        if method != "POST":
            return None
        asked.set()
        return Trouble(until=answer)

    double.mischief.choose = choose
    deletion = threading.Thread(target=backend.delete_prefix, args=("old/",))
    deletion.start()
    assert asked.wait(10)
    assert backend.put([PutItem(key_of(2), [memoryview(DATA)])], Deadline(5.0)) == [Status.OK]
    answer.set()
    deletion.join(10)


def test_a_storm_opens_the_breaker(double: S3Double, open_s3: Open, prefix: str) -> None:
    policy = BreakerPolicy(consecutive_failures=3, window=100, cooldown_s=60.0)
    backend = open_s3(double.options(prefix=prefix, **QUICK))
    guarded = Guarded(backend, contains_deadline=5.0, breaker=policy)
    double.mischief.choose = lambda method, path: Trouble(status=503, code="SlowDown")
    said = [guarded.probe([KEY])[1] for _ in range(5)]
    assert said == [Status.ERROR] * 3 + [Status.BREAKER_OPEN] * 2
    assert get(guarded, KEY, SIZE) is Status.BREAKER_OPEN
    guarded.close()


def test_a_storm_is_not_answered_with_a_storm_of_retries(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    backend = open_s3(double.options(prefix=prefix, **QUICK))
    double.mischief.choose = lambda method, path: Trouble(status=503, code="SlowDown")
    for at in range(120):
        backend.probe([key_of(at)])
    assert len(double.mischief.requests) <= 120 + 50


def test_a_clock_that_is_an_hour_off_is_an_error_that_says_so(
    double: S3Double, open_s3: Open, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    double.express.skew = 3600.0
    backend = open_s3(double.options(DIRECTORY_BUCKET, prefix=prefix, session_auth=False, **QUICK))
    assert get(backend, KEY, SIZE) is Status.ERROR
    assert "RequestTimeTooSkewed" in caplog.text


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_a_bucket_of_another_region_is_named(
    double: S3Double, open_s3: Open, prefix: str, plane: str, caplog: pytest.LogCaptureFixture
) -> None:
    where = (("x-amz-bucket-region", "eu-north-1"),)
    double.mischief.choose = only("HEAD", Trouble(status=400, code="Wrong", headers=where))
    backend = open_s3(double.options(prefix=prefix, plane=plane, **QUICK))
    assert backend.probe([KEY]) == ([False], Status.ERROR)
    assert "the bucket is in eu-north-1, set `region` to that" in caplog.text


def test_a_refusal_where_the_region_is_right_says_nothing_of_it(
    double: S3Double, open_s3: Open, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    where = (("x-amz-bucket-region", "us-east-1"),)
    double.mischief.choose = only("HEAD", Trouble(status=403, headers=where))
    backend = open_s3(double.options(prefix=prefix, **QUICK))
    assert backend.probe([KEY]) == ([False], Status.ERROR)
    assert "403" in caplog.text
    assert "us-east-1" not in caplog.text


def test_a_wrong_secret_is_an_error(weed: SeaweedServer, open_s3: Open, prefix: str) -> None:
    backend = open_s3(weed.options(prefix=prefix, secret_key="wrong", **QUICK))
    assert put(backend, KEY, DATA) is Status.ERROR
    assert get(backend, KEY, SIZE) is Status.ERROR


@pytest.fixture
def nobody() -> Iterator[str]:
    """An endpoint where nothing listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_no_server_at_all(nobody: str, open_s3: Open, plane: str) -> None:
    backend = open_s3(options_for(nobody, plane=plane, **QUICK))
    assert backend.probe([KEY]) == ([False], Status.ERROR)
    assert put(backend, KEY, DATA) is Status.ERROR
    assert get(backend, KEY, SIZE) is Status.ERROR
    assert backend.delete([KEY]) == [False]
    assert backend.delete_prefix("any/") is False
    with pytest.raises(ConnectionError):
        list(backend.scan())


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, open_s3: Open, prefix: str) -> None:
    with SeaweedServer(tmp_path) as server:
        backend = open_s3(server.options(prefix=prefix, **{**QUICK, "read_timeout": 10.0}))
        assert put(backend, KEY, DATA) is Status.OK
        assert get(backend, KEY, SIZE) == DATA
        server.kill()
        assert get(backend, KEY, SIZE) is Status.ERROR
        assert backend.probe([KEY]) == ([False], Status.ERROR)
        server.start()
        wait_until(lambda: get(backend, KEY, SIZE) == DATA, "the blob to be served again")
