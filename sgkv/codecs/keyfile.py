"""A file of keys, changed as a whole: made, rotated, a key dropped from it."""

from __future__ import annotations

import json
import os
import re
import time
from base64 import b64encode
from pathlib import Path

from sgkv.codecs.envelope import KEY_BYTES
from sgkv.codecs.errors import KeyConfigError
from sgkv.codecs.keys import read_document

_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def new(path: Path, key_id: str | None = None) -> str:
    """Make the file, with one key; its id. Raises KeyConfigError where there is one already."""
    key_id = _checked(key_id)
    if path.exists():
        raise KeyConfigError(f"{path} is there already: rotate it, or name another")
    _write(path, key_id, {key_id: _random()})
    return key_id


def rotate(path: Path, key_id: str | None = None) -> str:
    """Add a key that wraps from now on; its id. What the others wrapped they still open."""
    _, keys = read_document(path)
    key_id = _checked(key_id)
    if key_id in keys:
        raise KeyConfigError(f"{path} has a key {key_id!r} already")
    _write(path, key_id, {**keys, key_id: _random()})
    return key_id


def drop(path: Path, key_id: str) -> None:
    """Forget a key: what it wrapped can never be read again. Raises KeyConfigError for the current one."""
    current, keys = read_document(path)
    if key_id not in keys:
        raise KeyConfigError(f"{path} has no key {key_id!r}; it has {', '.join(keys)}")
    if key_id == current:
        raise KeyConfigError(f"{key_id!r} is the current key: rotate first, then drop it")
    _write(path, current, {name: key for name, key in keys.items() if name != key_id})


def _checked(key_id: str | None) -> str:
    key_id = key_id or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    if not _KEY_ID.fullmatch(key_id):
        raise KeyConfigError(f"{key_id!r} is no id: up to 64 letters, digits, dots, dashes, underscores")
    return key_id


def _random() -> bytes:
    return os.urandom(KEY_BYTES)


def _write(path: Path, current: str, keys: dict[str, bytes]) -> None:
    encoded = {key_id: b64encode(key).decode() for key_id, key in keys.items()}
    aside = path.with_name(f"{path.name}.new")
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump({"current": current, "keys": encoded}, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _sync(path.parent)  # or a power cut could bring back a file without the key that has sealed since
    except OSError as error:
        raise KeyConfigError(f"{path} cannot be written: {error}") from error


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
