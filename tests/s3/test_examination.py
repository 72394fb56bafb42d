"""What a bucket is found to be able to do, and what then is left out."""

from __future__ import annotations

import logging

import pytest

from sgkv.backends.base import Status
from sgkv.backends.s3 import S3Backend
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import S3Double, options_for
from sgkv.testing.s3.mischief import Trouble
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.waiting import wait_until
from tests.backends.blobs import key_of, put
from tests.s3.conftest import Open

pytestmark = pytest.mark.slow


def abilities(backend: S3Backend) -> dict[str, bool]:
    return {finding.what: finding.able for finding in backend.examine().findings}


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_a_real_server_can_do_everything(weed: SeaweedServer, open_s3: Open, prefix: str, plane: str) -> None:
    backend = open_s3(weed.options(prefix=prefix, plane=plane))
    found = abilities(backend)
    assert list(found) == ["access", "write", "ranges", "conditional writes", "checksums", "listing"]
    assert all(found.values()), found
    assert not list(backend.scan())


def test_a_directory_bucket_says_how_it_lets_us_in(double: S3Double, open_s3: Open, prefix: str) -> None:
    report = open_s3(double.options(DIRECTORY_BUCKET, prefix=prefix, encryption="AES256")).examine()
    assert report.usable
    assert "access: by session" in str(report)


def test_a_wrong_secret_is_told_and_nothing_else_tried(
    weed: SeaweedServer, open_s3: Open, prefix: str
) -> None:
    report = open_s3(weed.options(prefix=prefix, secret_key="wrong")).examine()
    assert not report.usable
    assert [(finding.what, finding.able) for finding in report.findings] == [("access", False)]


def test_no_server_is_told(open_s3: Open) -> None:
    report = open_s3(options_for("http://127.0.0.1:9", list_seconds=None)).examine()
    assert not report.usable
    assert "refused" in str(report)


def test_a_moment_of_trouble_is_no_inability(double: S3Double, open_s3: Open, prefix: str) -> None:
    puts = iter(range(1000))

    def choose(method: str, path: str) -> Trouble | None:
        return Trouble(status=503, code="SlowDown") if method == "PUT" and next(puts) == 1 else None

    double.mischief.choose = choose
    report = open_s3(double.options(prefix=prefix, list_seconds=None)).examine()
    assert report.able("conditional writes")
    assert "conditional writes: not found out (503 SlowDown)" in str(report)


def test_where_conditions_are_ignored_the_tier_does_without(
    double: S3Double, open_s3: Open, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    puts = iter(range(1000))

    def ignore(method: str, path: str) -> Trouble | None:
        return Trouble(status=200) if method == "PUT" and next(puts) == 1 else None

    double.mischief.choose = ignore
    backend = open_s3(double.options(prefix=prefix, list_seconds=None, examine=True))
    wait_until(lambda: "conditional writes: no" in caplog.text, "the report", 10)
    wait_until(lambda: not backend._objects.conditional, "writes without conditions", 10)
    assert put(backend, key_of(1), b"x") is Status.OK
    assert put(backend, key_of(1), b"y") is Status.EXISTS
