"""boto3's client: control plane, credentials, and listings."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ProfileNotFound

from sgkv.backends.s3.address import is_virtual
from sgkv.backends.s3.options import S3Options

_DEFAULT_REGION = "us-east-1"
"""What S3-compatible servers expect where nothing else is configured."""


def open_session(options: S3Options) -> Any:
    """A boto3 session with the credentials `options` name, or those of boto3's chain.

    Raises ValueError for a profile that does not exist.
    """
    try:
        return boto3.Session(
            aws_access_key_id=options.access_key,
            aws_secret_access_key=options.secret_key,
            aws_session_token=options.session_token,
            region_name=options.region,
            profile_name=options.profile,
        )
    except ProfileNotFound as error:
        raise ValueError(f"{error} in what boto3 reads, such as ~/.aws/config") from error


def region_of(session: Any) -> str:
    """The region requests are signed for."""
    return str(session.region_name or _DEFAULT_REGION)


def open_client(
    session: Any, options: S3Options, *, attempts: int, connections: int, sessions: bool = False
) -> Any:
    """A client of the bucket's service. Opens no connection yet.

    `attempts` of each call, all in all. `sessions`: let botocore open sessions of directory buckets;
    without, each request is authorized by itself, which needs the same permission. Checksums of
    botocore's own are off: not every server knows them, and blobs carry better ones.
    """
    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        max_pool_connections=connections,
        retries={"mode": "standard", "total_max_attempts": attempts},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "addressing_style": "virtual" if is_virtual(options) else "path",
            "payload_signing_enabled": False,
            "disable_s3_express_session_auth": not sessions,
        },
    )
    return session.client(
        "s3",
        endpoint_url=options.endpoint,
        region_name=region_of(session),
        verify=options.verify,
        config=config,
    )
