"""Signatures of requests, by botocore."""

from __future__ import annotations

from collections.abc import Mapping

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from sgkv.backends.s3.address import Address

_UNSIGNED = "UNSIGNED-PAYLOAD"
"""Blobs carry checksums of their own; hashing them again would cost more than sending them."""
_SESSION = "x-amz-s3session-token"


class _BodilessAuth(S3SigV4Auth):  # type: ignore[misc]
    """Signs the head of a request only."""

    def payload(self, request: AWSRequest) -> str:
        return _UNSIGNED


class _SessionAuth(_BodilessAuth):
    """Directory buckets take a session's token in a header of its own ("CreateSession", S3 API)."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        super()._modify_request_before_signing(request)
        request.headers[_SESSION] = self.credentials.token
        del request.headers["X-Amz-Security-Token"]


def sign(
    address: Address,
    method: str,
    path: str,
    headers: Mapping[str, str],
    keys: ReadOnlyCredentials,
    *,
    session: bool,
) -> dict[str, str]:
    """All headers of a signed request, `headers` among them; `session` when the keys are of a session."""
    url = f"{address.scheme}://{address.authority}{path}"
    request = AWSRequest(method=method, url=url, headers={"Host": address.authority, **headers})
    auth = _SessionAuth if session else _BodilessAuth
    auth(keys, "s3express" if address.directory else "s3", address.region).add_auth(request)
    return dict(request.headers.items())
