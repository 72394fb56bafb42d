"""Sessions of directory buckets: few of them, none missed, none mourned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import ClientError, ConnectionClosedError

from sgkv.backends.base import Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.deadline import Deadline
from sgkv.backends.guard import Guarded
from sgkv.backends.remote.endings import Abandoned
from sgkv.backends.s3 import S3Backend
from sgkv.backends.s3.replies import Locked
from sgkv.backends.s3.sessions import Grant, SessionKeys
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import S3Double
from sgkv.testing.s3.mischief import Trouble
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import blob, get, key_of, put
from tests.backends.disks import Clock
from tests.s3.conftest import Open

pytestmark = pytest.mark.slow

DATA = blob(5000)


def open_directory(double: S3Double, open_s3: Open, prefix: str, **options: object) -> S3Backend:
    """Without listings, so that every request counted is one of the test."""
    options = {"present_seconds": 0.0, "absent_seconds": 0.0, **options}
    return open_s3(double.options(DIRECTORY_BUCKET, prefix=prefix, list_seconds=None, **options))


def at_once(threads: int, work: Callable[[int], object]) -> list[object]:
    start = threading.Barrier(threads)

    def run(at: int) -> object:
        start.wait(10)
        return work(at)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


def test_32_cold_threads_open_one_session(double: S3Double, open_s3: Open, prefix: str) -> None:
    double.express.create_delay = 0.2
    backend = open_directory(double, open_s3, prefix)
    found = at_once(32, lambda at: backend.probe([key_of(at)]))
    assert found == [([False], Status.OK)] * 32
    assert double.express.counts["CreateSession"] == 1
    assert backend.stats().counters["sessions_opened"] == 1


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_a_revoked_session_fails_no_operation(
    double: S3Double, open_s3: Open, prefix: str, plane: str
) -> None:
    backend = open_directory(double, open_s3, prefix, plane=plane)
    assert put(backend, key_of(1), DATA) is Status.OK
    double.express.revoke()
    assert at_once(16, lambda _: get(backend, key_of(1), 5000)) == [DATA] * 16
    double.express.revoke()
    assert put(backend, key_of(2), DATA) is Status.OK
    assert double.express.counts["InvalidToken"] >= 2


@pytest.mark.parametrize(("plane", "at_a_time"), [("thin", 1), ("boto3", 8)])
def test_what_is_refused_for_good_opens_few_sessions_and_the_breaker(
    double: S3Double, open_s3: Open, prefix: str, plane: str, at_a_time: int
) -> None:
    """A policy that forbids reading, say, which no session changes. boto3 opens one a thread each time."""
    backend = open_directory(double, open_s3, prefix, plane=plane)
    double.mischief.choose = lambda method, path: (
        Trouble(status=403, code="AccessDenied") if method == "HEAD" else None
    )
    began = time.monotonic()
    found = at_once(8, lambda at: [backend.probe([key_of(8 * at + n)])[1] for n in range(8)])
    pauses = time.monotonic() - began
    assert found == [[Status.ERROR] * 8] * 8
    assert double.express.counts["CreateSession"] <= at_a_time * (2 + pauses / 0.2)
    guarded = Guarded(
        backend, contains_deadline=5.0, breaker=BreakerPolicy(consecutive_failures=3, cooldown_s=60.0)
    )
    assert [guarded.probe([key_of(1)])[1] for _ in range(4)] == [Status.ERROR] * 3 + [Status.BREAKER_OPEN]


@pytest.mark.slow
def test_sessions_of_four_seconds_fail_none_of_a_thousand_operations(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    double.express.ttl = 4.0
    backend = open_directory(double, open_s3, prefix)
    assert put(backend, key_of(1), DATA) is Status.OK
    ends = time.monotonic() + 9

    def work(at: int) -> list[object]:
        answers = []
        while len(answers) < 130 or time.monotonic() < ends:
            answers.append(backend.probe([key_of(1)]))
        return answers

    asked = [answer for answers in at_once(8, work) for answer in answers]
    assert len(asked) >= 1000
    assert set(map(str, asked)) == {str(([True], Status.OK))}
    assert 3 <= double.express.counts["CreateSession"] <= 6


def test_a_service_that_refuses_sessions_for_a_while_is_asked_again(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    double.express.create_failures = 2
    backend = open_directory(double, open_s3, prefix)
    assert backend.probe([key_of(1)]) == ([False], Status.OK)


def test_without_session_auth_each_request_is_signed_by_key(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    backend = open_directory(double, open_s3, prefix, session_auth=False)
    assert put(backend, key_of(1), DATA) is Status.OK
    assert get(backend, key_of(1), 5000) == DATA
    assert double.express.counts["CreateSession"] == double.express.counts["by_session"] == 0


def test_a_clock_that_is_minutes_off_does_not_end_sessions(
    double: S3Double, open_s3: Open, prefix: str
) -> None:
    double.express.skew = -600.0
    backend = open_directory(double, open_s3, prefix)
    assert put(backend, key_of(1), DATA) is Status.OK
    assert [get(backend, key_of(1), 5000) for _ in range(20)] == [DATA] * 20
    assert double.express.counts["CreateSession"] <= 2


class Service:
    """Gives out numbered keys with 100 s of life, when it is let."""

    def __init__(self) -> None:
        self.granted = 0
        self.failing = False
        self.open = threading.Event()
        self.open.set()

    def __call__(self) -> Grant:
        assert self.open.wait(10)
        if self.failing:
            raise ConnectionClosedError(endpoint_url="http://nowhere")
        self.granted += 1
        return Grant(ReadOnlyCredentials(str(self.granted), "secret", "token"), 100.0)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(service: Service, clock: Clock) -> SessionKeys:
    return SessionKeys(service, clock)


def test_an_aging_session_is_used_while_the_next_one_comes(
    service: Service, clock: Clock, keys: SessionKeys
) -> None:
    assert keys.current(None).access_key == "1"
    clock.now += 80
    service.open.clear()
    assert keys.current(None).access_key == "1"
    service.open.set()
    wait_until(lambda: keys.current(None).access_key == "2", "the next session")
    assert service.granted == 2


def test_who_cannot_wait_for_a_session_does_not(service: Service, keys: SessionKeys) -> None:
    service.open.clear()
    with pytest.raises(Abandoned):
        keys.current(Deadline(0.01))
    service.open.set()


def test_after_a_failure_callers_learn_of_it_at_once(
    service: Service, clock: Clock, keys: SessionKeys
) -> None:
    service.failing = True
    with pytest.raises(Locked, match="CreateSession"):
        keys.current(None)
    service.failing = False
    with pytest.raises(Locked, match="CreateSession"):
        keys.current(None)
    clock.now += 1
    assert keys.current(None).access_key == "1"


@pytest.mark.parametrize("wrong", [KeyError("Expiration"), ValueError("no session"), RuntimeError("too old")])
def test_an_answer_without_a_session_is_a_failure_like_any_other(clock: Clock, wrong: Exception) -> None:
    asked = []

    def answer() -> Grant:
        asked.append(wrong)
        raise wrong

    keys = SessionKeys(answer, clock)
    for _ in range(5):
        with pytest.raises(Locked, match="CreateSession"):
            keys.current(None)
    assert len(asked) == 1


def test_a_session_that_has_ended_when_it_comes_is_a_failure(clock: Clock) -> None:
    asked = []

    def answer() -> Grant:
        asked.append(1)
        return Grant(ReadOnlyCredentials("key", "secret", "token"), 0.0)

    keys = SessionKeys(answer, clock)
    for _ in range(5):
        with pytest.raises(Locked, match="ended already"):
            keys.current(None)
    assert len(asked) == 1


def test_a_service_that_answers_without_a_session_is_an_error(
    double: S3Double, open_s3: Open, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend = open_directory(double, open_s3, prefix)
    double.mischief.choose = lambda method, path: Trouble(body=b"")
    assert backend.probe([key_of(1)]) == ([False], Status.ERROR)
    assert "holds no session" in caplog.text


@pytest.mark.parametrize("plane", ["thin", "boto3"])
@pytest.mark.parametrize(
    "failure",
    [ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole"), RuntimeError("still expired")],
    ids=["refused", "too old"],
)
def test_a_role_that_gives_no_keys_is_an_error_of_each_call(
    double: S3Double,
    open_s3: Open,
    prefix: str,
    plane: str,
    failure: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a call of its own to another service raised, botocore passes on."""

    def refuse(self: Credentials) -> ReadOnlyCredentials:
        raise failure

    monkeypatch.setattr(Credentials, "get_frozen_credentials", refuse)
    backend = open_s3(double.options(prefix=prefix, plane=plane, list_seconds=None, attempts=1))
    assert backend.probe([key_of(1)]) == ([False], Status.ERROR)
    assert put(backend, key_of(1), DATA) is Status.ERROR
    assert get(backend, key_of(1), 5) is Status.ERROR


def test_a_rejected_session_is_replaced_once_for_all(service: Service, keys: SessionKeys) -> None:
    first = keys.current(None)
    assert keys.reject(first)
    second = keys.current(None)
    assert keys.reject(first)
    assert keys.current(None) is second
    assert service.granted == 2


def test_refused_with_a_new_session_too_it_is_kept_for_a_while(
    service: Service, clock: Clock, keys: SessionKeys
) -> None:
    assert keys.reject(keys.current(None))
    second = keys.current(None)
    keys.retried(refused=True)
    assert not keys.reject(second)
    assert keys.current(None) is second
    clock.now += 1
    assert keys.reject(second)
    keys.current(None)
    keys.retried(refused=True)
    clock.now += 0.3  # longer than the first time
    assert not keys.reject(keys.current(None))
    assert service.granted == 3


def test_once_a_new_session_helped_the_next_refusal_is_worth_another(
    service: Service, keys: SessionKeys
) -> None:
    for _ in range(5):
        assert keys.reject(keys.current(None))
        keys.current(None)
        keys.retried(refused=False)
    assert service.granted == 6
