"""Where requests go, compared with where botocore sends them."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSRequest

from sgkv.backends.s3.address import locate, zone_of
from sgkv.backends.s3.client import open_client, open_session
from sgkv.backends.s3.options import S3Options

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
