"""Which weights a model's KV was computed with: a fingerprint of the files themselves.

A path or a served name is no identity: a new checkpoint under the same path, or two models served
under one alias, would read each other's KV. Two fine-tunes of one base also have equal configs and
equal tensor headers, so the fingerprint covers tensor bytes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from xxhash import xxh3_128

FULL_READ_BYTES = 1 << 30
"""`auto` reads every byte of checkpoints up to this size (well under a second from page cache)."""
_STRIDE, _SAMPLE = 1 << 20, 4096
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_HUB_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""Names of files in a hub cache: hashes of their content."""
_CONFIGS = (
    "config.json", "params.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json",
    "adapter_config.json",
)  # fmt: skip
"""Files that say how weights are used: Hugging Face's and Mistral's form, quantizers', adapters'."""
_VOLATILE = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "_commit_hash")


def fingerprint(model: Path, *, read_all: bool = False) -> str | None:
    """Hex digest of a checkpoint folder or file, or None where there is nothing to read.

    Files in a hub cache are named by their hash and need no reading. Otherwise a checkpoint of up
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
    """Hex digest of the model's configuration and own code: every fact in it that can change K or V.

    ``unknown`` where there is none, or none that can be read.
    """
    try:
        found = {file.name: _facts(file) for file in _config_files(model)}
    except OSError:
        return "unknown"
    return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else "unknown"


def changed_since(model: Path, moment: float) -> bool:
    """Whether a checkpoint was written, replaced or moved into place after `moment` (Unix seconds).

    What a process that has run since then holds in memory may then be older weights than the files.
    Files of a hub cache never change.
    """
    files = [file for file in (*_weight_files(model), *_config_files(model)) if not _hub_name(file)]
    links = [path for path in (model.absolute(), *model.absolute().parents) if path.is_symlink()]
    return _moved_since(model, moment) or any(path.lstat().st_ctime > moment for path in (*files, *links))


def local_path(name: str, revision: str | None, cache: str | None = None) -> Path | None:
    """Where a model's files lie: the path itself, or the snapshot of a repository in a hub cache.

    `cache` is the folder of that, None for the user's own.
    """
    path = Path(name)
    if path.exists():
        return path
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, cache_dir=cache, local_files_only=True))
    except (ImportError, OSError, ValueError):
        return None


def process_start() -> float:
    """When this process began, in Unix seconds (proc(5), stat field 22)."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _moved_since(model: Path, moment: float) -> bool:
    """A folder's own time counts only where its content's does not: it merely got another file in it."""
    place = model.stat()
    return model.is_dir() and place.st_mtime <= moment < place.st_ctime


def _config_files(model: Path) -> list[Path]:
    folder = model if model.is_dir() else model.parent
    named = (folder / name for name in _CONFIGS)
    return [*(file for file in named if file.is_file()), *sorted(folder.glob("*.py"))]


def _facts(file: Path) -> str:
    content = file.read_bytes()
    with suppress(ValueError, RecursionError):
        facts = json.loads(content)
        if isinstance(facts, dict):
            facts = {key: value for key, value in facts.items() if key not in _VOLATILE}
        content = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return sha256(content).hexdigest()


def _weight_files(model: Path) -> list[Path]:
    if model.is_file():
        return [model]
    if not model.is_dir():
        return []
    return sorted(file for file in model.iterdir() if file.suffix in _WEIGHT_SUFFIXES and file.is_file())


def _content(file: Path, whole: bool) -> str:
    if hub_name := _hub_name(file):
        return hub_name
    digest = xxh3_128()
    with file.open("rb", buffering=0) as stream:
        for offset, size in _pieces(os.fstat(stream.fileno()).st_size, whole):
            digest.update(os.pread(stream.fileno(), size, offset))
    return digest.hexdigest()


def _hub_name(file: Path) -> str:
    """The hash that names a file of a hub cache; empty for any other file."""
    name = file.resolve().name
    return name if _HUB_BLOB.fullmatch(name) else ""


def _pieces(size: int, whole: bool) -> Iterator[tuple[int, int]]:
    """(offset, length) of what is read: everything, or a sample of every stride and the end."""
    for offset in range(0, size, _STRIDE):
        yield offset, _STRIDE if whole else _SAMPLE
    if not whole:
        yield max(0, size - _STRIDE), _STRIDE
