"""Servers on loopback that answer like engines, for what no engine does on request: stall, fail, go away.

Real engines are in `test_fleet.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sgkv.control.serving import in_background
from sgkv.router.prompts import PromptReader
from sgkv.router.proxy import make_app
from sgkv.router.settings import RouterSettings

PAGE = 16


@dataclass
class FakeEngine:
    """Streams three pieces; `status` is what it answers, `pause` what it waits before its first piece."""

    name: str
    url: str = ""
    status: int = 200
    pause: float = 0.0
    seen: list[dict] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> Starlette:
        async def generate(request: Request) -> Response:
            self.headers.append(dict(request.headers))
            with suppress(ValueError):
                self.seen.append(json.loads(await request.body()))
            if self.status != 200:
                return JSONResponse({"from": self.name}, self.status)

            async def pieces():
                await asyncio.sleep(self.pause)
                for number in range(3):
                    yield f"data: {self.name} {number}\n\n".encode()

            return StreamingResponse(pieces(), media_type="text/event-stream")

        async def models(request: Request) -> Response:
            return JSONResponse({"from": self.name, "query": request.url.query})

        async def health(_request: Request) -> Response:
            return Response(status_code=self.status)

        posts = [Route(path, generate, methods=["POST"]) for path in ("/v1/completions", "/generate")]
        return Starlette(routes=[*posts, Route("/v1/models", models), Route("/health", health)])


def server(app: Starlette) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none"))


@dataclass
class Routed:
    url: str
    engines: list[FakeEngine]

    def post(self, body: object, path: str = "/v1/completions") -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(self.url + path, content=content, timeout=20)

    def served(self, tokens: list[int]) -> str:
        """The name of the engine that got a prompt."""
        answer = self.post({"prompt": tokens})
        assert answer.status_code == 200, answer.text
        return answer.text.split()[1]

    def status(self) -> list[dict]:
        return httpx.get(f"{self.url}/router/status", timeout=20).json()["engines"]


@contextmanager
def routing(count: int, **settings: object) -> Iterator[Routed]:
    with ExitStack() as stack:
        engines = [FakeEngine(f"engine{at}") for at in range(count)]
        for engine in engines:
            engine.url = stack.enter_context(in_background(server(engine.app())))
        told = [{"url": engine.url, "instance": engine.name} for engine in engines]
        given = RouterSettings.model_validate(
            {"engines": told, "page_tokens": PAGE, "health_every": 0.05, **settings}
        )
        app = make_app(given, PromptReader(PAGE))
        yield Routed(stack.enter_context(in_background(server(app))), engines)


@pytest.fixture
def make_router() -> Iterator[Callable[..., Routed]]:
    with ExitStack() as stack:
        yield lambda count=2, **settings: stack.enter_context(routing(count, **settings))
