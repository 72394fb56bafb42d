"""`sgkv control`: the fleet's controller, and what is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

control_app = typer.Typer(
    help="Where KV is in a fleet: ask, pin, move, clear. $SGKV_CONTROL_URL and $SGKV_CONTROL_TOKEN say whom, "
    "and as who.",
    no_args_is_help=True,
)

Namespace = Annotated[str, typer.Argument(help="Digest, as `sgkv control namespaces` lists them.")]
Prompt = Annotated[
    Path, typer.Argument(metavar="PROMPT", help='JSON: a list of token ids, or of page hashes; "-" is stdin.')
]
Instance = Annotated[str, typer.Argument(help="As `sgkv control instances` lists them.")]
Key = Annotated[str, typer.Option("--key", help="Of your own: to ask twice with one is to ask once.")]
Wait = Annotated[bool, typer.Option("--wait", help="Until it has ended; exit code 1 unless it is done.")]


@control_app.command("serve")
def serve(
    tokens: Annotated[Path, typer.Option("--tokens", metavar="FILE", help="YAML: who may ask what.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback with TLS only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="To listen at.")] = 7600,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM, with --key-file.")] = None,
    key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM.")] = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the audit log here; default: stderr.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="SGKV_CONTROL_STATE",
            help="Valkey server that keeps pins and drains, e.g. valkeys://user:secret@host:6379/0.",
        ),
    ] = None,
) -> None:
    """Run the controller in the foreground."""
    from sgkv.cli.control_runs import run_controller

    raise typer.Exit(run_controller(tokens, host, port, certificate, key_file, audit, state))


@control_app.command("show")
def show(
    what: Annotated[str, typer.Argument(help="instances, namespaces, pins or operations.")],
) -> None:
    """List what the controller knows, as JSON."""
    from sgkv.cli.control_runs import listing

    raise typer.Exit(listing(what))


@control_app.command("lookup")
def lookup(namespace: Namespace, prompt: Prompt) -> None:
    """Who has how much of a prompt, the best first."""
    from sgkv.cli.control_runs import ask
    from sgkv.control.models import Lookup

    raise typer.Exit(ask(prompt, lambda told: Lookup(namespace=namespace, **told), lambda c, w: c.lookup(w)))


@control_app.command("pin")
def pin(
    namespace: Namespace,
    prompt: Prompt,
    seconds: Annotated[float, typer.Option("--for", help="Seconds until the pin ends.")],
    instance: Annotated[list[str] | None, typer.Option(help="Default: all that have some of it.")] = None,
) -> None:
    """Keep a prompt from being evicted where it is."""
    from sgkv.cli.control_runs import ask
    from sgkv.control.models import PinWish

    names = tuple(instance or ())
    raise typer.Exit(
        ask(
            prompt,
            lambda told: PinWish(namespace=namespace, seconds=seconds, instances=names, **told),
            lambda client, wish: client.pin(wish),
        )
    )


@control_app.command("unpin")
def unpin(pin: Annotated[str, typer.Argument(help="Its id.")], *, wait: Wait = False) -> None:
    """End a pin."""
    from sgkv.cli.control_runs import order

    raise typer.Exit(order(lambda client: client.unpin(pin), wait=wait))


@control_app.command("prefetch")
def prefetch(
    namespace: Namespace, prompt: Prompt, instance: Instance, key: Key = "", *, wait: Wait = False
) -> None:
    """Have an instance read a prompt from its slower tiers into memory."""
    from sgkv.cli.control_runs import order, prompt_of
    from sgkv.control.models import PrefetchWish

    told = prompt_of(prompt)
    raise typer.Exit(
        order(
            lambda client: client.prefetch(PrefetchWish(namespace=namespace, instance=instance, **told), key),
            wait=wait,
        )
    )


@control_app.command("move")
def move(
    namespace: Namespace,
    prompt: Prompt,
    source: Annotated[str, typer.Argument(help="Instance that has it.")],
    target: Annotated[str, typer.Argument(help="Instance that is to have it.")],
    key: Key = "",
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it at the source, too.")] = False,
    wait: Wait = False,
) -> None:
    """Bring a prompt to another instance, over a tier that both reach."""
    from sgkv.cli.control_runs import order, prompt_of
    from sgkv.control.models import MoveWish

    told = prompt_of(prompt)
    raise typer.Exit(
        order(
            lambda client: client.move(
                MoveWish(namespace=namespace, source=source, target=target, keep=keep, **told), key
            ),
            wait=wait,
        )
    )


@control_app.command("clear")
def clear(
    tenant: Annotated[str | None, typer.Option(help="Everything of a tenant.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Everything in it, or with --prompt that.")] = None,
    prompt: Annotated[Path | None, typer.Option(metavar="FILE", help="As for lookup.")] = None,
    instance: Annotated[str | None, typer.Option(help="Default: all.")] = None,
    key: Key = "",
    *,
    wait: Wait = False,
) -> None:
    """Forget a prompt, a namespace or a tenant."""
    from sgkv.cli.control_runs import clear_wish, order

    raise typer.Exit(
        order(lambda client: client.clear(clear_wish(tenant, namespace, prompt, instance), key), wait=wait)
    )


@control_app.command("drain")
def drain(instance: Instance, key: Key = "", *, wait: Wait = False) -> None:
    """Mark an instance as leaving, and copy what its disk has to the tier that all reach."""
    from sgkv.cli.control_runs import order

    raise typer.Exit(order(lambda client: client.drain(instance, key), wait=wait))


@control_app.command("compress")
def compress(
    namespace: Namespace,
    instance: Instance,
    prompt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="As for lookup; default: the whole namespace.")
    ] = None,
    device: Annotated[str, typer.Option(help="disk or remote.")] = "disk",
    method: Annotated[str, typer.Option(help="zstd, lz4, or none to decompress.")] = "zstd",
    key: Key = "",
    *,
    wait: Wait = False,
) -> None:
    """Make smaller what an instance's tier has, or what it was again."""
    from sgkv.cli.control_runs import order, prompt_of
    from sgkv.control.models import CompressWish

    told = prompt_of(prompt) if prompt else {}
    fields = {"namespace": namespace, "instance": instance, "device": device, "method": method, **told}
    raise typer.Exit(order(lambda client: client.compress(CompressWish(**fields), key), wait=wait))


@control_app.command("undrain")
def undrain(instance: Instance) -> None:
    """Let things go to an instance again."""
    from sgkv.cli.control_runs import do

    raise typer.Exit(do(lambda client: client.undrain(instance)))


@control_app.command("operation")
def operation(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As printed where it began.")],
    *,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop it.")] = False,
    wait: Wait = False,
) -> None:
    """How far an operation is."""
    from sgkv.cli.control_runs import order

    raise typer.Exit(order(lambda client: client.cancel(id_) if cancel else client.operation(id_), wait=wait))
