"""The router as an ASGI application: requests in, the engines' answers out, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sgkv.control.places import Device
from sgkv.router.asking import Asking
from sgkv.router.engines import Choice, Engines, Errand
from sgkv.router.memory import Sent
from sgkv.router.prompts import GENERATING, Pages, PromptReader
from sgkv.router.settings import RouterSettings

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""RFC 9110, 7.6.1; and what depends on the connection."""
_ELSEWHERE = (httpx.ConnectError, httpx.ConnectTimeout)
"""Nothing has been done yet: another engine may be asked."""
_UNAVAILABLE, _GONE = 503, 499
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


class Router:
    """State of one router, and what it answers. Of the event loop alone."""

    def __init__(self, settings: RouterSettings, reader: PromptReader) -> None:
        self.engines = Engines(settings)
        self._settings = settings
        self._reader = reader
        self._sent = Sent(settings.remembered_pages)
        self._asking = (
            None if settings.controller is None else Asking(settings.controller, settings.page_tokens)
        )
        timeout = httpx.Timeout(settings.read_timeout, connect=settings.connect_timeout)
        self._http = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None))

    async def status(self, _request: Request) -> Response:
        """What the router believes and has done."""
        engines = [
            {
                "url": engine.url,
                "healthy": engine.healthy,
                "requests": engine.requests,
                "prompt_tokens": engine.prompt_tokens,
                "held_tokens": engine.held_tokens,
                "running": engine.load.running,
                "waiting_tokens": engine.load.tokens,
            }
            for engine in self.engines.all
        ]
        failures = 0 if self._asking is None else self._asking.failures
        return JSONResponse({"engines": engines, "controller_failures": failures})

    async def forward(self, request: Request) -> Response:
        """To the engine that is best for it, and to another where that cannot be reached."""
        running = sum(engine.load.running for engine in self.engines.all)
        if running >= self._settings.max_requests:
            return _refusal(429, f"{running} requests are under way, and may be no more")
        try:
            body = await _body(request, self._settings.max_body)
        except ClientDisconnect:
            return Response(status_code=_GONE)
        if body is None:
            return _refusal(413, f"a request may have {self._settings.max_body} bytes")
        return await self._send(request, body)

    async def tend(self) -> None:
        """Ask engines, now and then, whether they are well."""
        while True:
            await asyncio.gather(*(self._check(at) for at in range(len(self.engines.all))))
            await asyncio.sleep(self._settings.health_every)

    async def close(self) -> None:
        await self._http.aclose()
        if self._asking is not None:
            await self._asking.close()

    async def _send(self, request: Request, body: bytes) -> Response:
        generating = request.method == "POST" and request.url.path in GENERATING
        pages = self._reader.read(body) if generating else Pages()
        held = await self._held(pages)
        tried: frozenset[int] = frozenset()
        while len(tried) < self._settings.tries:
            choice = self.engines.choose(pages.tokens, held, tried)
            if choice is None:
                break
            answer = await self._ask(choice, request, body, pages)
            if answer is not None:
                return answer
            tried |= {choice.engine.at}
        return _refusal(_UNAVAILABLE, f"none of {len(tried)} engines can be reached")

    async def _held(self, pages: Pages) -> list[Mapping[Device, int]]:
        """By the controller, and where it does not say, by what was sent before."""
        engines = self.engines.all
        known = None
        if self._asking is not None:
            known = await self._asking.held(pages, [one.settings.instance for one in engines])
        size = self._settings.page_tokens
        sent = self._sent.leading(pages.hashes, len(engines))
        if known is None:
            return [{Device.GPU: run * size} for run in sent]
        # What is on its way there is not reported yet.
        return [
            {**told, Device.CPU: max(told.get(Device.CPU, 0), run * size)} if run else told
            for told, run in zip(known, sent, strict=True)
        ]

    async def _ask(self, choice: Choice, request: Request, body: bytes, pages: Pages) -> Response | None:
        """The engine's answer; None where it cannot be reached, or says that it cannot take requests."""
        errand = Errand(choice, pages.tokens)
        url = httpx.URL(choice.engine.url + request.url.path, query=request.url.query.encode())
        headers = [(k, v) for k, v in request.headers.raw if k.decode().lower() not in _HOP_BY_HOP]
        self._sent.note(choice.engine.at, pages.hashes)  # now: others of its kind may be close behind
        asked = self._http.build_request(request.method, url, headers=headers, content=body)
        try:
            answer = await self._http.send(asked, stream=True)
        except httpx.HTTPError as error:
            errand.ended()
            choice.engine.healthy = False
            if isinstance(error, _ELSEWHERE):
                return None
            return _refusal(502, f"the engine at {choice.engine.url} broke off: {error!r}")
        except asyncio.CancelledError:
            errand.ended()
            raise
        if answer.status_code == _UNAVAILABLE:
            errand.ended()
            await answer.aclose()
            return None
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
        return _Relay(answer, errand, kept)

    async def _check(self, at: int) -> None:
        engine = self.engines.all[at]
        try:
            answer = await self._http.get(f"{engine.url}/health", timeout=self._settings.connect_timeout)
            well = answer.status_code < 500
        except httpx.HTTPError:
            well = False
        if engine.healthy and not well:
            self._sent.forget(at)
        engine.healthy = well


def make_app(settings: RouterSettings, reader: PromptReader) -> Starlette:
    """The ASGI application; `GET /router/status` is its own, everything else an engine's."""
    router = Router(settings, reader)

    @asynccontextmanager
    async def tended(_app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(router.tend())
        yield
        task.cancel()
        await router.close()

    routes = [
        Route("/router/status", router.status),
        Route("/{path:path}", router.forward, methods=_METHODS),
    ]
    return Starlette(routes=routes, lifespan=tended)


class _Relay(StreamingResponse):
    """An engine's answer; the errand ends with it, whatever becomes of the client."""

    def __init__(self, answer: httpx.Response, errand: Errand, headers: Mapping[str, str]) -> None:
        super().__init__(_pieces(answer, errand), answer.status_code, headers)
        self._answer = answer
        self._errand = errand

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._errand.ended()
            await self._answer.aclose()


async def _pieces(answer: httpx.Response, errand: Errand) -> AsyncIterator[bytes]:
    with suppress(httpx.HTTPError):  # the engine broke off in the middle: the client sees the answer end
        async for piece in answer.aiter_raw():
            errand.begun()
            yield piece


async def _body(request: Request, most: int) -> bytes | None:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(status: int, why: str) -> Response:
    """In the form of OpenAI's errors."""
    return JSONResponse({"error": {"message": why, "type": "router_error", "code": status}}, status)
