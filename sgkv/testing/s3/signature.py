"""Checking AWS Signature Version 4 on the server's side, which moto does not.

After "Authenticating Requests (AWS Signature Version 4)", S3 API reference.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote

SKEW_SECONDS = 900.0
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<date>\d+)/(?P<region>[^/]+)/(?P<service>[^/]+)/"
    r"aws4_request, ?"
    r"SignedHeaders=(?P<signed>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)

Environ = Mapping[str, Any]


def access_key(environ: Environ) -> str | None:
    """Whose signature a request claims to bear."""
    found = _AUTHORIZATION.match(environ.get("HTTP_AUTHORIZATION", ""))
    return found["key"] if found else None


def signed_at(environ: Environ) -> float:
    """Unix seconds of the client's clock."""
    text = environ.get("HTTP_X_AMZ_DATE", "19700101T000000Z")
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def is_signed_with(environ: Environ, secret: str, service: str) -> bool:
    """Whether the request is signed with `secret`, for `service`."""
    found = _AUTHORIZATION.match(environ.get("HTTP_AUTHORIZATION", ""))
    if found is None or found["service"] != service:
        return False
    scope = (found["date"], found["region"], service, "aws4_request")
    digest = hashlib.sha256(_canonical(environ, found["signed"]).encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", environ["HTTP_X_AMZ_DATE"], "/".join(scope), digest])
    key = f"AWS4{secret}".encode()
    for part in (*scope, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(key.hex(), found["signature"])


def _canonical(environ: Environ, signed: str) -> str:
    pairs = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    query = "&".join(
        sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
    )
    path = (environ.get("REQUEST_URI") or environ["RAW_URI"]).partition("?")[0]
    headers = "".join(f"{name}:{_header(environ, name)}\n" for name in signed.split(";"))
    payload = environ.get("HTTP_X_AMZ_CONTENT_SHA256", "UNSIGNED-PAYLOAD")
    return "\n".join([environ["REQUEST_METHOD"], path, query, headers, signed, payload])


def _header(environ: Environ, name: str) -> str:
    variable = name.upper().replace("-", "_")
    value = environ.get(variable if name in ("content-type", "content-length") else f"HTTP_{variable}", "")
    return " ".join(value.split())
