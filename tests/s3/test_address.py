"""Where requests go, compared with where botocore sends them."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSRequest

from sgkv.backends.base import Status
from sgkv.backends.s3.address import locate, zone_of
from sgkv.backends.s3.client import open_client, open_session
from sgkv.backends.s3.options import S3Options
from sgkv.testing.s3 import BUCKET
from sgkv.testing.s3.double import S3Double, options_for
from tests.backends.blobs import get, key_of, put
from tests.s3.conftest import Open

AWS = {"region": "eu-west-1", "access_key": "a", "secret_key": "s"}
DIRECTORY = "kv--use1-az4--x-s3"


@pytest.mark.parametrize(
    ("bucket", "zone"),
    [
        (DIRECTORY, "use1-az4"),
        ("kv--usw2-lax1-az1--x-s3", "usw2-lax1-az1"),
        ("my-kv--euw1-az2--x-s3", "euw1-az2"),
        ("kv", None),
        ("kv--x-s3", None),
        ("kv--use1-az4", None),
    ],
)
def test_a_directory_bucket_names_its_zone(bucket: str, zone: str | None) -> None:
    assert zone_of(bucket) == zone


@pytest.mark.parametrize(
    "options",
    [
        S3Options("kv-bucket", **AWS),
        S3Options("kv.with.dots", **AWS),
        S3Options("kv-bucket", addressing="path", **AWS),
        S3Options(DIRECTORY, **AWS),
        S3Options("kv-bucket", **{**AWS, "region": "cn-north-1"}),
        S3Options("kv-bucket", endpoint="http://127.0.0.1:9000", **AWS),
        S3Options("kv-bucket", endpoint="https://s3.example.com", addressing="virtual", **AWS),
        S3Options(DIRECTORY, endpoint="http://127.0.0.1:9000", **AWS),
    ],
    ids=lambda options: f"{options.bucket} {options.endpoint} {options.addressing} {options.region}",
)
def test_requests_go_where_boto3_sends_them(options: S3Options) -> None:
    address = locate(options, options.region or "")
    client = open_client(open_session(options), options, attempts=1, connections=1)
    seen: list[AWSRequest] = []

    class SentError(Exception):
        pass

    def stop(request: AWSRequest, **_: object) -> None:
        seen.append(request)
        raise SentError

    client.meta.events.register("before-send.s3", stop)
    with pytest.raises(SentError):
        client.head_object(Bucket=options.bucket, Key="n/c/ab/a key+1")
    url = urlsplit(seen[0].url)
    assert (url.scheme, url.netloc) == (address.scheme, address.authority)
    assert url.path == address.path("n/c/ab/a key+1")


@pytest.mark.parametrize("endpoint", ["ftp://host", "host:9000", "http://host/path", "http://"])
def test_an_endpoint_is_a_url_of_a_host(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        locate(S3Options("kv-bucket", endpoint=endpoint), "us-east-1")


@pytest.mark.parametrize("plane", ["thin", "boto3"])
def test_a_bucket_named_by_its_host_is_served(
    double: S3Double, open_s3: Open, prefix: str, plane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = socket.getaddrinfo

    def find_here(host: str, *how: object, **options: object) -> object:
        return find("127.0.0.1" if host == f"{BUCKET}.localhost" else host, *how, **options)

    monkeypatch.setattr(socket, "getaddrinfo", find_here)
    endpoint = double.endpoint.replace("127.0.0.1", "localhost")
    options = options_for(endpoint, prefix=prefix, addressing="virtual", plane=plane, list_seconds=None)
    assert put(open_s3(options), key_of(1), b"by host") is Status.OK
    assert {path for _, path in double.mischief.requests} == {f"/{prefix}{key_of(1)}"}
    by_path = open_s3(double.options(prefix=prefix, list_seconds=None))
    assert get(by_path, key_of(1), 7) == b"by host"
    assert [info.key for info in open_s3(options).scan()] == [key_of(1)]
