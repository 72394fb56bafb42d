"""What the commands of `sgkv control` do."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError

from sgkv.cli.config import USAGE
from sgkv.control.client import ControlClient, ControlError
from sgkv.control.models import ClearWish, OperationView, Prompt, Wish

_URL = "http://127.0.0.1:7600"
_WAIT_SECONDS = 0.5
_LONGEST_WAIT = 3600.0

W = TypeVar("W", bound=Wish)


def run_controller(
    tokens: Path,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    audit: Path | None,
    state: str | None,
) -> int:
    """Serve until a signal. Returns the exit code."""
    from sgkv.control.access import Tokens
    from sgkv.control.desk import Desk
    from sgkv.control.keeping import Keeper, KeepingError
    from sgkv.control.registry import Registry
    from sgkv.control.serving import Listening, audit_into, make_server

    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
    try:
        if audit is not None:
            audit_into(audit)
        keeper = Keeper(state) if state else None
        desk = Desk(Registry(), keeper)
        server = make_server(Tokens.load(tokens), Listening(host, port, certificate, key), desk=desk)
    except (ValueError, OSError, ImportError, KeepingError) as error:
        typer.echo(f"sgkv control: {error}", err=True)
        return USAGE
    try:
        server.run()
    finally:
        if keeper is not None:
            keeper.close()
    return 0


def prompt_of(file: Path) -> dict[str, Any]:
    """`tokens` or `hashes` of a file. Raises typer.Exit where it holds neither."""
    try:
        told = json.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except (OSError, ValueError) as error:
        typer.echo(f"{file}: {error}", err=True)
        raise typer.Exit(USAGE) from error
    if not isinstance(told, list):
        typer.echo(f"{file} holds no list: write token ids or page hashes", err=True)
        raise typer.Exit(USAGE)
    return {"hashes": told} if told and isinstance(told[0], str) else {"tokens": told}


def clear_wish(
    tenant: str | None, namespace: str | None, prompt: Path | None, instance: str | None
) -> ClearWish:
    """Raises ValidationError unless it is one of the three."""
    if prompt is None:
        return ClearWish(tenant=tenant, namespace=namespace, instance=instance)
    named = Prompt(namespace=namespace or "", **prompt_of(prompt))
    return ClearWish(tenant=tenant, prompt=named, instance=instance)


def listing(what: str) -> int:
    """Returns the exit code."""

    def show(client: ControlClient) -> int:
        lists: dict[str, Callable[[], list[Any]]] = {
            "instances": client.instances,
            "namespaces": client.namespaces,
            "pins": client.pins,
            "operations": client.operations,
        }
        if what not in lists:
            typer.echo(f"there are no {what}: ask for {', '.join(lists)}", err=True)
            return USAGE
        typer.echo(TypeAdapter(list[Any]).dump_json(lists[what](), indent=2))
        return 0

    return _with_client(show)


def ask(
    prompt: Path, make: Callable[[dict[str, Any]], W], call: Callable[[ControlClient, W], BaseModel]
) -> int:
    """One question about a prompt; prints the answer. Returns the exit code."""
    told = prompt_of(prompt)

    def show(client: ControlClient) -> int:
        typer.echo(call(client, make(told)).model_dump_json(indent=2))
        return 0

    return _with_client(show)


def order(call: Callable[[ControlClient], OperationView], *, wait: bool) -> int:
    """Give an order; prints the operation. Returns the exit code."""

    def give(client: ControlClient) -> int:
        view = call(client)
        until = time.monotonic() + _LONGEST_WAIT
        while wait and view.state == "running" and time.monotonic() < until:
            time.sleep(_WAIT_SECONDS)
            view = client.operation(view.id)
        typer.echo(view.model_dump_json(indent=2))
        return int(wait and view.state != "done")

    return _with_client(give)


def do(call: Callable[[ControlClient], None]) -> int:
    """Something that answers with nothing. Returns the exit code."""

    def run(client: ControlClient) -> int:
        call(client)
        return 0

    return _with_client(run)


def _with_client(work: Callable[[ControlClient], int]) -> int:
    token = os.environ.get("SGKV_CONTROL_TOKEN", "")
    if not token:
        typer.echo("whose token? export SGKV_CONTROL_TOKEN=...", err=True)
        return USAGE
    try:
        with ControlClient(os.environ.get("SGKV_CONTROL_URL", _URL), token) as client:
            return work(client)
    except ControlError as error:
        typer.echo(str(error), err=True)
        return 1
    except ValidationError as error:
        for one in error.errors(include_url=False, include_input=False):
            typer.echo(f"{'.'.join(map(str, one['loc'])) or 'the command'}: {one['msg']}", err=True)
        return USAGE
