"""What it takes to reach a bucket, and how hard to try."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class S3Options:
    """Durations in seconds. What is None is left to boto3's own chain of settings."""

    bucket: str
    """A name like ``kv--use1-az4--x-s3`` is a directory bucket (S3 Express One Zone)."""
    prefix: str = ""
    """Before every key; empty or ending in ``/``."""
    region: str | None = None
    endpoint: str | None = None
    """``http(s)://host[:port]`` of an S3-compatible server; None is AWS."""
    addressing: Literal["auto", "path", "virtual"] = "auto"
    """auto: by path at an own endpoint, by host name at AWS."""
    verify: bool | str = True
    """TLS: check certificates; a path is a file of certificate authorities."""
    profile: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    session_auth: bool = True
    """Directory buckets: CreateSession; without it every request is authorized by itself."""
    plane: Literal["thin", "boto3"] = "thin"
    """Which client moves the bytes."""
    encryption: Literal["AES256", "aws:kms"] | None = None
    """Asked for at every PUT; not for directory buckets, which have it as a property of the bucket."""
    kms_key: str | None = None
    conditional: bool = True
    """Create with ``If-None-Match: *``. A server that ignores it lets the last of two writers win."""
    examine: bool = False
    """Find out at start what the bucket can do, with one small object below the prefix, and say so."""
    concurrency: int = 16
    """Requests at once that move bytes, for reads and for writes."""
    probes: int = 32
    """Existence checks at once."""
    connect_timeout: float = 1.0
    read_timeout: float = 5.0
    """Silence on a connection after which it is given up."""
    attempts: int = 3
    """Of one request, the first included."""
    known_keys: int = 250_000
    """Keys remembered, present and absent each. A bucket with a capacity remembers all it holds."""
    present_seconds: float = 600.0
    """How long a key seen in the bucket counts as there."""
    absent_seconds: float = 2.0
    """How long a key not seen counts as absent."""
    list_seconds: float | None = 300.0
    """Pause between two listings of the prefix; None never lists, and then old blobs are not swept either."""

    def __post_init__(self) -> None:
        """Raises ValueError for settings that contradict themselves."""
        if self.prefix and (not self.prefix.endswith("/") or self.prefix.startswith("/")):
            raise ValueError(f"prefix {self.prefix!r}: it ends in '/' and does not begin with one")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key go together: set both or neither")
        if self.kms_key is not None and self.encryption != "aws:kms":
            raise ValueError("kms_key needs encryption: aws:kms")
