"""The reference data plane: boto3 does everything."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    HTTPClientError,
    NoCredentialsError,
    ReadTimeoutError,
)
from urllib3.exceptions import HTTPError

from sgkv.backends.base import Buffer
from sgkv.backends.buffers import after, first
from sgkv.backends.deadline import Deadline, landing
from sgkv.backends.remote.endings import Abandoned, Silent, Unreachable
from sgkv.backends.remote.spans import Window
from sgkv.backends.s3.backoff import Backoff
from sgkv.backends.s3.plane import DataPlane
from sgkv.backends.s3.replies import Locked, Reply

_PIECE = 1 << 20
_RANGE = re.compile(r"bytes (\d{1,19})-\d+/(\d{1,19}|\*)")
_REJECTED = (400, 401, 403)
_ARGUMENTS = {
    "If-None-Match": "IfNoneMatch",
    "x-amz-checksum-crc32": "ChecksumCRC32",
    "x-amz-server-side-encryption": "ServerSideEncryption",
    "x-amz-server-side-encryption-aws-kms-key-id": "SSEKMSKeyId",
}


class BotoPlane(DataPlane):
    """Slower, and as far from surprises as boto3 is.

    Every piece is read into memory of its own and copied into the caller's. botocore keeps sessions of
    directory buckets to itself, a request a thread at the start, and does not notice that one was
    revoked: a new client does.
    """

    def __init__(self, new_client: Callable[[], Any], bucket: str, *, sessions: bool) -> None:
        """`new_client` opens nothing; `sessions` where the bucket takes them."""
        self._new_client = new_client
        self._bucket = bucket
        self._sessions = sessions
        self._lock = threading.Lock()
        self._refusals = Backoff()
        self._client = new_client()

    def head(self, name: str, deadline: Deadline | None) -> Reply:
        def ask(client: Any) -> Reply:
            answer = client.head_object(Bucket=self._bucket, Key=name)
            return Reply(_status(answer), size=answer["ContentLength"], etag=answer.get("ETag", ""))

        return self._call(ask, deadline)

    def get(self, name: str, window: Window, deadline: Deadline | None) -> Reply:
        asked = f"bytes={window.start}-{window.start + window.size - 1}"

        def ask(client: Any) -> Reply:
            answer = client.get_object(Bucket=self._bucket, Key=name, Range=asked)
            return _landed(answer, window, deadline)

        return self._call(ask, deadline)

    def put(
        self, name: str, buffers: Sequence[Buffer], headers: Mapping[str, str], deadline: Deadline | None
    ) -> Reply:
        options = {_ARGUMENTS[field]: value for field, value in headers.items()}

        def ask(client: Any) -> Reply:
            body = _Body(buffers, deadline)
            answer = client.put_object(
                Bucket=self._bucket, Key=name, Body=body, ContentLength=body.size, **options
            )
            return Reply(_status(answer), etag=answer.get("ETag", ""))

        return self._call(ask, deadline)

    def delete(self, name: str, deadline: Deadline | None) -> Reply:
        def ask(client: Any) -> Reply:
            return Reply(_status(client.delete_object(Bucket=self._bucket, Key=name)))

        return self._call(ask, deadline)

    def close(self) -> None:
        self._client.close()

    def _call(self, ask: Callable[[Any], Reply], deadline: Deadline | None) -> Reply:
        if deadline is not None and deadline.over:
            raise Abandoned
        client = self._client
        reply = _translated(ask, client)
        if not self._sessions or reply.status not in _REJECTED or self._refusals.pausing:
            return reply
        reply = _translated(ask, self._replaced(client))
        if reply.status in _REJECTED:  # with a new session, too
            self._refusals.failed()
        else:
            self._refusals.succeeded()
        return reply

    def _replaced(self, client: Any) -> Any:
        """A client that knows of no session yet; one for all who were refused."""
        with self._lock:
            if self._client is client:
                self._client = self._new_client()
            return self._client


class _Body:
    """Buffers as the file boto3 wants. Its end is read, and sent, only while the deadline is not over."""

    def __init__(self, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
        self._buffers = buffers
        self._deadline = deadline
        self.size = sum(map(len, buffers))
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        most = self.size - self._at if size is None or size < 0 else min(size, self.size - self._at)
        piece = b"".join(first(after(self._buffers, self._at), most))
        self._at += most
        if self._at == self.size and self._deadline is not None and self._deadline.over:
            raise Abandoned
        return piece

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at


def _translated(ask: Callable[[Any], Reply], client: Any) -> Reply:
    """What boto3 raises, in this package's words."""
    try:
        return ask(client)
    except ClientError as error:
        answer = error.response.get("ResponseMetadata", {})
        region = answer.get("HTTPHeaders", {}).get("x-amz-bucket-region", "")
        elsewhere = "" if region == client.meta.region_name else region
        code = error.response.get("Error", {}).get("Code", "")
        return Reply(answer.get("HTTPStatusCode", 500), code, region=elsewhere)
    except (NoCredentialsError, RuntimeError) as error:  # the last for roles' keys that are too old when new
        raise Locked(str(error)) from error
    except (ConnectTimeoutError, ReadTimeoutError) as error:
        raise Silent(str(error)) from error
    except HTTPClientError as error:
        if isinstance(error.kwargs.get("error"), Abandoned):
            raise Abandoned from error
        raise Unreachable(str(error)) from error
    except (BotoCoreError, HTTPError, OSError, LookupError, ValueError) as error:
        raise Unreachable(str(error)) from error


def _status(answer: Mapping[str, Any]) -> int:
    return int(answer["ResponseMetadata"]["HTTPStatusCode"])


def _landed(answer: Mapping[str, Any], window: Window, deadline: Deadline | None) -> Reply:
    body, size = answer["Body"], answer["ContentLength"]
    start, total = _extent(answer)
    etag = answer.get("ETag", "")
    if start != window.start:
        body.close()
        raise Unreachable(f"asked for bytes from {window.start}, got them from {start}")
    if size < window.size:
        body.close()
        return Reply(_status(answer), size=total, etag=etag)
    _fill(body, window.buffers, deadline)
    body.close()
    return Reply(_status(answer), size=total, etag=etag, filled=True)


def _extent(answer: Mapping[str, Any]) -> tuple[int, int]:
    """Where in the object the body starts, and the length of the object as far as is known."""
    size = answer["ContentLength"]
    found = _RANGE.fullmatch(answer.get("ContentRange", ""))
    if found is None:
        return 0, size
    start = int(found[1])
    return start, start + size if found[2] == "*" else int(found[2])


def _fill(body: Any, buffers: Sequence[Buffer], deadline: Deadline | None) -> None:
    for buffer in buffers:
        for start in range(0, len(buffer), _PIECE):
            target = buffer[start : start + _PIECE]
            piece = body.read(len(target))
            if len(piece) != len(target):
                raise Unreachable("the body ended before its length")
            with landing(deadline) as admitted:
                if not admitted:
                    body.close()
                    raise Abandoned
                target[:] = piece
