"""Which weights a model's KV was computed with: a fingerprint of the files themselves.

A path or a served name is no identity: a new checkpoint under the same path, or two models served
under one alias, would read each other's KV. Two fine-tunes of one base also have equal configs and
equal tensor headers, so the fingerprint covers tensor bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from xxhash import xxh3_128

FULL_READ_BYTES = 1 << 30
"""`auto` reads every byte of checkpoints up to this size (well under a second from page cache)."""
_STRIDE, _SAMPLE = 1 << 20, 4096
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_HUB_BLOB = re.compile(r"[0-9a-f]{64}")
_VOLATILE = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "_commit_hash")


def fingerprint(model: Path, *, read_all: bool = False) -> str | None:
    """Hex digest of a checkpoint folder or file, or None where there is nothing to read.

    Files in a hub cache are named by their SHA-256 and need no reading. Otherwise a checkpoint of up
    to `FULL_READ_BYTES` is read whole, and a larger one is sampled: 4 KiB of every MiB, with sizes
    and both ends. Sampling can miss an edit of a few rows; `read_all` (config: `model.weights: full`)
    or an operator's own revision string does not. Blocking I/O; call once at start.
    """
    files = _weight_files(model)
    if not files:
        return None
    digest = sha256(architecture(model).encode())
    whole = read_all or sum(file.stat().st_size for file in files) <= FULL_READ_BYTES
    for file in files:
        digest.update(f"{file.name}:{file.stat().st_size}:{_content(file, whole)}\n".encode())
    return digest.hexdigest()


def architecture(model: Path) -> str:
    """Hex digest of the model's config: every fact in it that can change K or V."""
    config = model / "config.json" if model.is_dir() else model.with_name("config.json")
    try:
        facts = json.loads(config.read_text())
    except (OSError, ValueError):
        return "unknown"
    for key in _VOLATILE:
        facts.pop(key, None)
    return sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _weight_files(model: Path) -> list[Path]:
    if model.is_file():
        return [model]
    if not model.is_dir():
        return []
    return sorted(file for file in model.iterdir() if file.suffix in _WEIGHT_SUFFIXES and file.is_file())


def _content(file: Path, whole: bool) -> str:
    hub_name = file.resolve().name
    if _HUB_BLOB.fullmatch(hub_name):
        return hub_name
    digest = xxh3_128()
    with file.open("rb", buffering=0) as stream:
        for offset, size in _pieces(os.fstat(stream.fileno()).st_size, whole):
            digest.update(os.pread(stream.fileno(), size, offset))
    return digest.hexdigest()


def _pieces(size: int, whole: bool) -> Iterator[tuple[int, int]]:
    """(offset, length) of what is read: everything, or a sample of every stride and the end."""
    for offset in range(0, size, _STRIDE):
        yield offset, _STRIDE if whole else _SAMPLE
    if not whole:
        yield max(0, size - _STRIDE), _STRIDE
