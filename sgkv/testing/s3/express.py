"""What makes a directory bucket of moto's ordinary one: sessions, and rules of its own.

After the S3 user guide's chapters on directory buckets. Which codes AWS answers an expired or unknown
session with is not documented: here they are ExpiredToken and InvalidToken, both 400.
"""

from __future__ import annotations

import hashlib
import random
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from sgkv.backends.s3.address import zone_of
from sgkv.testing.s3 import ACCESS_KEY, SECRET_KEY
from sgkv.testing.s3.signature import SKEW_SECONDS, access_key, is_signed_with, signed_at

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_SERVICE = "s3express"
_UNSUPPORTED = frozenset({"tagging", "acl", "versioning", "versions", "legal-hold", "retention", "website"})
_SESSION = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<CreateSessionResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Credentials>'
    "<SessionToken>{token}</SessionToken><SecretAccessKey>{secret}</SecretAccessKey>"
    "<AccessKeyId>{key}</AccessKeyId><Expiration>{expiration}</Expiration></Credentials></CreateSessionResult>"
)


@dataclass(frozen=True, slots=True)
class _Session:
    bucket: str
    key: str
    secret: str
    ends_at: float


class Refusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """An S3 error to answer with."""

    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code
        super().__init__(code)


class Express:
    """A WSGI application over another; buckets that are no directory buckets pass through."""

    def __init__(self, app: WsgiApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self.ttl = 300.0
        """Seconds a session lives."""
        self.create_delay = 0.0
        self.create_failures = 0
        """How many of the next CreateSession requests are answered with 503."""
        self.skew = 0.0
        """Seconds that this server's clock is ahead."""
        self.counts: Counter[str] = Counter()

    def revoke(self) -> None:
        """End every session now, without a word to its holder."""
        with self._lock:
            self._sessions.clear()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
        if zone_of(bucket) is None:
            return self._app(environ, start_response)
        query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
        try:
            if environ["REQUEST_METHOD"] == "GET" and "session" in query:
                return self._create_session(environ, bucket, start_response)
            self._authorize(
                environ, bucket, control=not key and environ["REQUEST_METHOD"] in ("PUT", "DELETE")
            )
            listing = not key and "list-type" in query
            _obey(environ, query, listing=listing)
        except Refusal as refusal:
            self._count(refusal.code)
            return refuse(refusal, start_response)
        environ.pop("HTTP_X_AMZ_S3SESSION_TOKEN", None)
        return self._as_directory(environ, start_response, shuffled=listing)

    def _create_session(
        self, environ: dict[str, Any], bucket: str, start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        time.sleep(self.create_delay)
        with self._lock:
            failing = self.create_failures > 0
            self.create_failures -= failing
        if failing:
            raise Refusal(503, "SlowDown")
        self._authorize_by_key(environ)
        session = _Session(
            bucket, secrets.token_hex(8).upper(), secrets.token_urlsafe(30), self._now() + self.ttl
        )
        token = secrets.token_urlsafe(48)
        with self._lock:
            self._sessions[token] = session
            self.counts["CreateSession"] += 1
        expiration = datetime.fromtimestamp(session.ends_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = _SESSION.format(token=token, secret=session.secret, key=session.key, expiration=expiration)
        return _answer(start_response, 200, body.encode())

    def _authorize(self, environ: dict[str, Any], bucket: str, *, control: bool) -> None:
        token = environ.get("HTTP_X_AMZ_S3SESSION_TOKEN")
        if token is None or control:
            self._authorize_by_key(environ)
            self._count("by_key")
            return
        session = self._sessions.get(token)
        if session is None or session.bucket != bucket or session.key != access_key(environ):
            raise Refusal(400, "InvalidToken")
        if self._now() > session.ends_at:
            raise Refusal(400, "ExpiredToken")
        if not is_signed_with(environ, session.secret, _SERVICE):
            raise Refusal(403, "SignatureDoesNotMatch")
        self._count("by_session")

    def _authorize_by_key(self, environ: dict[str, Any]) -> None:
        if abs(signed_at(environ) - self._now()) > SKEW_SECONDS:
            raise Refusal(403, "RequestTimeTooSkewed")
        if access_key(environ) != ACCESS_KEY or not is_signed_with(environ, SECRET_KEY, _SERVICE):
            raise Refusal(403, "SignatureDoesNotMatch")

    def _as_directory(
        self, environ: dict[str, Any], start_response: Callable[..., Any], *, shuffled: bool
    ) -> Iterable[bytes]:
        """Let moto answer, with ETags that are no digests and listings in no order."""
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(self._app(environ, lambda status, headers, *_: begun.append((status, headers))))
        status, headers = begun[0]
        if shuffled:
            body = _shuffled(body)
        start_response(status, [_disguised(*header) for header in headers])
        return [body]

    def _now(self) -> float:
        return time.time() + self.skew

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


def refuse(
    refusal: Refusal, start_response: Callable[..., Any], headers: Sequence[tuple[str, str]] = ()
) -> Iterable[bytes]:
    """Answer as S3 words an error."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{refusal.code}</Code></Error>'
    return _answer(start_response, refusal.status, body.encode(), headers)


def _obey(environ: dict[str, Any], query: dict[str, str], *, listing: bool) -> None:
    """Refuse what directory buckets do not have."""
    if _UNSUPPORTED & query.keys() or "HTTP_X_AMZ_SERVER_SIDE_ENCRYPTION" in environ:
        raise Refusal(501, "NotImplemented")
    if listing and (not query.get("prefix", "/").endswith("/") or "start-after" in query):
        raise Refusal(400, "InvalidRequest")


def _answer(
    start_response: Callable[..., Any], status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()
) -> Iterable[bytes]:
    usual = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(f"{status} -", [*usual, *headers])
    return [body]


def _disguised(name: str, value: str) -> tuple[str, str]:
    if name.lower() != "etag":
        return name, value
    return name, f'"{hashlib.sha256(value.encode()).hexdigest()[:32]}"'


def _shuffled(body: bytes) -> bytes:
    rows = re.findall(rb"<Contents>.*?</Contents>", body, re.DOTALL)
    random.shuffle(rows)
    left = iter(rows)
    return re.sub(rb"<Contents>.*?</Contents>", lambda _: next(left), body, flags=re.DOTALL)
