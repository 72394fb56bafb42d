"""Answers as they should not be, for tests of whoever reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sgkv.testing.s3.express import Refusal, WsgiApp, refuse


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to a request; the fields add up."""

    status: int | None = None
    """Answer with this instead of asking the server behind."""
    code: str = "InternalError"
    headers: tuple[tuple[str, str], ...] = ()
    """Of that answer, beside the usual ones."""
    until: threading.Event | None = None
    """Answer only when this is set, or after ten seconds."""
    half: bool = False
    """Break off in the middle of the body."""
    flip: bool = False
    """Change one bit in the middle of the body."""
    body: bytes | None = None
    """Answer with this body, whatever the server behind says."""
    etag: str | None = None
    """Answer with this ETag."""


class Mischief:
    """A WSGI application over another, which asks `choose` what to do to each request."""

    def __init__(self, app: WsgiApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self.choose: Callable[[str, str], Trouble | None] = lambda method, path: None
        """Of the request's method and path."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request, in the order they came."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        with self._lock:
            self.requests.append(request)
        trouble = self.choose(*request)
        if trouble is None:
            return self._app(environ, start_response)
        if trouble.until is not None:
            trouble.until.wait(10)
        if trouble.status is not None:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return refuse(Refusal(trouble.status, trouble.code), start_response, trouble.headers)
        return self._spoiled(environ, start_response, trouble)

    def _spoiled(
        self, environ: dict[str, Any], start_response: Callable[..., Any], trouble: Trouble
    ) -> Iterable[bytes]:
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        body = bytearray(
            b"".join(self._app(environ, lambda status, headers, *_: begun.append((status, headers))))
        )
        status, headers = begun[0]
        if trouble.etag is not None:
            headers = [*((n, v) for n, v in headers if n.lower() != "etag"), ("ETag", trouble.etag)]
        if trouble.body is not None:
            body = bytearray(trouble.body)
            length = "Content-Length", str(len(body))
            headers = [*((n, v) for n, v in headers if n.lower() != "content-length"), length]
        if trouble.flip and body:
            body[len(body) // 2] ^= 1
        start_response(status, headers)
        return _half(bytes(body)) if trouble.half else [bytes(body)]


def _half(body: bytes) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    raise ConnectionResetError("broken off, as a test wants it")
