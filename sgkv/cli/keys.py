"""`sgkv keys`: the file of keys with which tiers are sealed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(help="Make and rotate the keys of tiers that encrypt.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="As `keys.file` in the configuration.")]
NewId = Annotated[str | None, typer.Option("--id", metavar="ID", help="Default: the time.")]
_USAGE = 2


@keys_app.command("new")
def new(file: File, key_id: NewId = None) -> None:
    """Make a file with one random key, which only its owner may read."""
    from sgkv.codecs import keyfile

    with _refusals():
        typer.echo(f"{file}: key {keyfile.new(file, key_id)}")


@keys_app.command("rotate")
def rotate(file: File, key_id: NewId = None) -> None:
    """Add a key that seals from the next start on; what others sealed stays readable."""
    from sgkv.codecs import keyfile

    with _refusals():
        typer.echo(f"{file}: key {keyfile.rotate(file, key_id)} is current")


@keys_app.command("drop")
def drop(
    file: File,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `sgkv keys list` shows it.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a key: nothing that it sealed can be read any more, wherever copies of it are."""
    from sgkv.codecs import keyfile

    if not yes:
        typer.confirm(f"Nothing sealed with {key_id} can be read afterwards. Drop it?", abort=True)
    with _refusals():
        keyfile.drop(file, key_id)
        typer.echo(f"{file}: key {key_id} is gone")


@keys_app.command("list")
def list_keys(file: File) -> None:
    """Print the ids of the keys, never a key."""
    from sgkv.codecs.keys import read_document

    with _refusals():
        current, keys = read_document(file)
        for key_id in keys:
            typer.echo(f"{key_id}{'  current' if key_id == current else ''}")


@contextmanager
def _refusals() -> Iterator[None]:
    from sgkv.codecs.errors import KeyConfigError

    try:
        yield
    except KeyConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_USAGE) from error
