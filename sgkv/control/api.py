"""The controller's HTTP API. Handlers run in the event loop, which owns the desk: none waits or blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response

from sgkv import __version__
from sgkv.boundary import contained
from sgkv.control.access import Caller, Role, Tokens
from sgkv.control.desk import Desk
from sgkv.control.gate import App, Gate, GateLimits
from sgkv.control.models import (
    ClearWish,
    CompressWish,
    InstanceView,
    Lookup,
    LookupView,
    MoveWish,
    NamespaceView,
    OperationView,
    PinView,
    PinWish,
    PrefetchWish,
    PrefixView,
)
from sgkv.control.operations import TooManyError
from sgkv.control.pages import add_pages
from sgkv.control.views import (
    instance_view,
    match_view,
    namespace_view,
    operation_view,
    pin_view,
    prefix_view,
)
from sgkv.control.wire import MEDIA_TYPE, Report
from sgkv.control.wishes import Wishes
from sgkv.counters import Counters

_TEND_SECONDS = 0.5
_HOTTEST = 50
_report = msgspec.msgpack.Decoder(Report)


def make_app(desk: Desk, tokens: Tokens, limits: GateLimits | None = None) -> App:
    """The ASGI application of a controller."""
    counters = Counters()

    @asynccontextmanager
    async def tended(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_tend(desk, counters))
        yield
        task.cancel()

    api = FastAPI(title="sgkv control", version=__version__, lifespan=tended, docs_url=None, redoc_url=None)
    add_pages(api)
    _add_reading(api, desk)
    _add_orders(api, desk)
    _add_reports(api, desk)

    @api.exception_handler(TooManyError)
    async def too_many(_request: Request, error: TooManyError) -> Response:
        return Response(msgspec.json.encode({"detail": str(error)}), 429, media_type="application/json")

    return Gate(api, tokens, limits or GateLimits())


async def _tend(desk: Desk, counters: Counters) -> None:
    while True:
        with contained("tending the controller", counters):
            desk.tend()
        await asyncio.sleep(_TEND_SECONDS)


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _with(role: Role) -> Any:
    def allowed(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        if not caller.may(role):
            raise HTTPException(403, f"this needs a token whose role is {role.name.lower()} or more")
        return caller

    return Depends(allowed)


Reader = Annotated[Caller, _with(Role.READ)]
Operator = Annotated[Caller, _with(Role.OPERATE)]
Admin = Annotated[Caller, _with(Role.ADMIN)]
Key = Annotated[str, Header(alias="idempotency-key", max_length=128)]


def _add_reading(api: FastAPI, desk: Desk) -> None:
    wishes = Wishes(desk)

    @api.get("/v1/health")
    async def health() -> dict[str, str]:
        return {"version": __version__}

    @api.post("/v1/lookup")
    async def lookup(wish: Lookup, caller: Reader) -> LookupView:
        """Who has how much of a prompt, the best first."""
        facts = wishes.namespace(wish.namespace, caller)
        hashes = wishes.hashes(wish, caller)
        matches = desk.lookup(facts, hashes, wish.limit)
        return LookupView(pages=len(hashes), matches=[match_view(one, facts.page_tokens) for one in matches])

    @api.get("/v1/instances")
    async def instances(caller: Reader) -> list[InstanceView]:
        """What they hold and missed only to who speaks for every tenant."""
        counts = caller.tenants is None
        return [instance_view(desk, one, counts=counts) for one in desk.registry.instances.values()]

    @api.get("/v1/namespaces")
    async def namespaces(caller: Reader) -> list[NamespaceView]:
        return [namespace_view(one) for one in desk.namespaces.values() if caller.covers(one.tenant)]

    @api.get("/v1/prefixes")
    async def prefixes(caller: Reader) -> list[PrefixView]:
        """The prefixes that lookups found most often, of those they met lately."""
        hot = [(one, desk.namespaces[one.namespace]) for one in desk.heat.hottest(_HOTTEST)]
        return [prefix_view(one, facts.page_tokens) for one, facts in hot if caller.covers(facts.tenant)]

    @api.get("/v1/pins")
    async def pins(caller: Reader) -> list[PinView]:
        return [pin_view(one) for one in desk.pins if caller.covers(one.tenant)]

    @api.get("/v1/operations")
    async def operations(caller: Reader) -> list[OperationView]:
        return [operation_view(one) for one in desk.operations if wishes.sees(caller, one)]

    @api.get("/v1/operations/{id_}")
    async def operation(id_: str, caller: Reader) -> OperationView:
        return operation_view(wishes.operation(id_, caller))


def _add_orders(api: FastAPI, desk: Desk) -> None:
    wishes = Wishes(desk)

    @api.post("/v1/operations/{id_}/cancel")
    async def cancel(id_: str, caller: Operator) -> OperationView:
        operation = wishes.operation(id_, caller)
        operation.cancel()
        return operation_view(operation)

    @api.post("/v1/pins", status_code=202)
    async def pin(wish: PinWish, caller: Operator, request: Request) -> PinView:
        pin, operation = wishes.pin(wish, caller)
        request.state.audit = {"operation": operation.id, "namespace": wish.namespace}
        return pin_view(pin, operation.id)

    @api.delete("/v1/pins/{id_}", status_code=202)
    async def unpin(id_: str, caller: Operator) -> OperationView:
        return operation_view(wishes.unpin(id_, caller))

    @api.post("/v1/prefetch", status_code=202)
    async def prefetch(
        wish: PrefetchWish, caller: Operator, request: Request, key: Key = ""
    ) -> OperationView:
        operation = wishes.prefetch(wish, caller, key)
        request.state.audit = {"operation": operation.id, "namespace": wish.namespace}
        return operation_view(operation)

    @api.post("/v1/move", status_code=202)
    async def move(wish: MoveWish, caller: Operator, request: Request, key: Key = "") -> OperationView:
        operation = wishes.move(wish, caller, key)
        request.state.audit = {"operation": operation.id, "namespace": wish.namespace}
        return operation_view(operation)

    @api.post("/v1/compress", status_code=202)
    async def compress(
        wish: CompressWish, caller: Operator, request: Request, key: Key = ""
    ) -> OperationView:
        """Or decompress, with the method none. A prompt takes the role operate, a namespace admin."""
        operation = wishes.compress(wish, caller, key)
        request.state.audit = {"operation": operation.id, "namespace": wish.namespace}
        return operation_view(operation)

    @api.post("/v1/clear", status_code=202)
    async def clear(wish: ClearWish, caller: Operator, request: Request, key: Key = "") -> OperationView:
        """A prompt takes the role operate, a namespace or a tenant admin."""
        operation = wishes.clear(wish, caller, key)
        request.state.audit = {"operation": operation.id, "tenants": sorted(operation.tenants)}
        return operation_view(operation)

    @api.post("/v1/instances/{name}/drain", status_code=202)
    async def drain(name: str, caller: Admin, request: Request, key: Key = "") -> OperationView:
        """Mark it, so that nothing new goes there, and copy what its disk has to the tier that all reach."""
        operation = wishes.drain(name, caller, key)
        request.state.audit = {"operation": operation.id}
        return operation_view(operation)

    @api.delete("/v1/instances/{name}/drain", status_code=204)
    async def undrain(name: str, caller: Admin) -> None:
        """Let things go there again."""
        wishes.undrain(name, caller)


def _add_reports(api: FastAPI, desk: Desk) -> None:
    wishes = Wishes(desk)

    @api.post("/v1/report", include_in_schema=False)
    async def report(request: Request, caller: Annotated[Caller, Depends(_caller)]) -> Response:
        """From an agent: MessagePack (`sgkv.control.wire`)."""
        try:
            told = _report.decode(await request.body())
            wishes.require_agent(caller, told)
            ack = desk.receive(told)
        except (msgspec.DecodeError, ValueError) as error:
            raise HTTPException(422, f"no report: {error}") from error
        return Response(msgspec.msgpack.encode(ack), media_type=MEDIA_TYPE)
