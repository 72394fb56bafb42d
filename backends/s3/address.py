"""Where a bucket is, and the path of each object on that host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from sgkv.backends.s3.options import S3Options

_DIRECTORY = re.compile(r"[a-z0-9][a-z0-9-]*?--([a-z0-9]+(?:-[a-z0-9]+)+)--x-s3")
_PORTS = {"http": 80, "https": 443}


def zone_of(bucket: str) -> str | None:
    """The zone in a directory bucket's name; None for every other bucket.

    The form of the name is the one of "Directory bucket naming rules" in the S3 user guide.
    """
    found = _DIRECTORY.fullmatch(bucket)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Address:
    """One bucket on one host."""

    secure: bool
    host: str
    """Name or IP address to connect to."""
    port: int
    root: str
    """What stands before an object's key in the path: empty, or ``/bucket``."""
    region: str
    directory: bool

    @property
    def authority(self) -> str:
        """The Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "https" if self.secure else "http"

    def path(self, name: str) -> str:
        """The request path of the object called `name`."""
        return f"{self.root}/{quote(name, safe='/-_.~')}"


def locate(options: S3Options, region: str) -> Address:
    """The address `options` mean. Raises ValueError for an endpoint that is no URL of a host."""
    zone = zone_of(options.bucket)
    endpoint = options.endpoint or _aws(zone, region)
    parts = urlsplit(endpoint)
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"endpoint {endpoint!r} is not like https://host or http://host:9000")
    by_host = is_virtual(options)
    return Address(
        secure=parts.scheme == "https",
        host=f"{options.bucket}.{parts.hostname}" if by_host else parts.hostname,
        port=parts.port or _PORTS[parts.scheme],
        root="" if by_host else f"/{options.bucket}",
        region=region,
        directory=zone is not None,
    )


def is_virtual(options: S3Options) -> bool:
    """Whether the bucket is named by the host and not by the path."""
    if options.addressing != "auto":
        return options.addressing == "virtual"
    if options.endpoint is not None:
        return False
    # A dot in the name is one level more than the certificate's wildcard covers.
    return "." not in options.bucket


def _aws(zone: str | None, region: str) -> str:
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    service = "s3" if zone is None else f"s3express-{zone}"
    return f"https://{service}.{region}.{suffix}"
