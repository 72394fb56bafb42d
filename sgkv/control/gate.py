"""What every request passes before its body is looked at: token, rate, size; and the audit log behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from sgkv.control.access import Caller, Tokens
from sgkv.control.pages import OPEN as PAGES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

audit = logging.getLogger("sgkv.control.audit")
"""One JSON object a line: who asked for what, and the status of the answer."""

OPEN = PAGES | {"/v1/health"}
_QUIET = frozenset({"/v1/report", "/v1/lookup"})
"""Asked for many times a second; only what is refused is worth a line."""
_BODY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What one request, and one token, may take."""

    body_bytes: int = 16 << 20
    requests_a_second: float = 200.0
    """Over any second; twice as many at once after a pause."""


class Bucket:
    """Tokens that come back at a rate. Of the event loop alone."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate, self._most = rate, 2 * rate
        self._clock = clock
        self._left, self._at = self._most, clock()

    def take(self) -> float:
        """0.0, or the seconds to wait before one is there."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


class RefusedError(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Gate:
    """ASGI middleware; puts the caller into the request's state."""

    def __init__(
        self, app: App, tokens: Tokens, limits: GateLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._tokens, self._limits, self._clock = app, tokens, limits, clock
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            raise ValueError(f"the controller speaks HTTP, not {scope['type']}")
        state = scope.setdefault("state", {})
        answered = _Answered(send)
        try:
            if scope["path"] not in OPEN:
                state["caller"] = self._admit(scope)
            body = await self._body(scope, receive)
            await self._app(scope, _Replay(body, receive), answered)
        except RefusedError as refusal:
            await _refuse(refusal, answered)
        finally:
            _note(scope, answered.status)
        return None

    def _admit(self, scope: Scope) -> Caller:
        caller = self._tokens.caller(_header(scope, b"authorization"))
        if caller is None:
            raise RefusedError(
                401, "show a token: Authorization: Bearer ...", **{"www-authenticate": "Bearer"}
            )
        rate = self._limits.requests_a_second
        wait = self._buckets.setdefault(caller.name, Bucket(rate, self._clock)).take()
        if wait:
            detail = f"more than {rate:g} requests a second with one token"
            raise RefusedError(429, detail, **{"retry-after": str(int(wait) + 1)})
        return caller

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        too_large = RefusedError(413, f"a body is at most {self._limits.body_bytes} bytes")
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > self._limits.body_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes:
                        raise too_large
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise RefusedError(408, f"the body did not come within {_BODY_SECONDS:g} seconds") from None


class _Replay:
    """The body in one piece, then whatever else the client does."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Answered:
    """Notes the status of an answer on its way."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def _refuse(refusal: RefusedError, send: Send) -> None:
    body = json.dumps({"detail": refusal.detail}).encode()
    extra = [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _note(scope: Scope, status: int) -> None:
    path, method = scope["path"], scope["method"]
    if status < 400 and (method == "GET" or path in _QUIET):
        return
    caller = scope["state"].get("caller")
    line = {
        "at": round(time.time(), 3),
        "from": (scope.get("client") or ("",))[0],
        "who": caller.name if caller else None,
        "method": method,
        "path": path,
        "status": status,
        **scope["state"].get("audit", {}),
    }
    audit.info("%s", json.dumps(line))


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
