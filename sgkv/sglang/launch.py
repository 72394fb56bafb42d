"""The extra config that SGLang's `dynamic` backend needs to become sgkv.

Imports neither sglang nor torch: the command line prints what this module makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAUNCH_ID = "SGKV_LAUNCH_ID"
"""Environment variable set once a launch: the ranks of a server agree on it, and no other server or
restart has the same."""

DYNAMIC: dict[str, Any] = {
    "backend_name": "sgkv",
    "module_path": "sgkv.sglang.hicache",
    "class_name": "SgkvHiCache",
    "interface_v1": 1,
    "hicache_storage_pass_prefix_keys": True,
}
"""Keys of SGLang's own in the extra config: our class, zero-copy transfers, and the page hashes
before each batch, without which pages cannot be put together into chunks."""

ATTACHED = {"allocator": "shm"}
"""Key of SGLang's own for an engine attached to the node's daemon: host pools in shared memory, which the
daemon reads and writes itself."""

LINKER: dict[str, str] = {"linker": "SgkvLinker", "linker_module_path": "sgkv.sglang.linker"}
"""Keys of ``--unified-cache-external-linker-config`` that name our class."""


def linker_arguments(settings: dict[str, Any]) -> list[str]:
    """SGLang's flags for our linker over a store with `settings`."""
    config = {**LINKER, "linker_extra_config": settings}
    return [
        "--enable-unified-cache-external-linker",
        "--unified-cache-external-linker-backend",
        "dynamic",
        "--unified-cache-external-linker-config",
        json.dumps(config),
    ]


def expand(extra_config: str | None) -> tuple[dict[str, Any], list[str]]:
    """The full extra config from what the user gave (JSON, ``@file`` or nothing), and what was set.

    Raises ValueError (ConfigError for a file) with the reason for text that is not an object.
    """
    given = read_extra_config(extra_config)
    added = {key: value for key, value in DYNAMIC.items() if key not in given}
    forced = {key: DYNAMIC[key] for key in ("backend_name", "module_path", "class_name")}
    said = ["dynamic backend sgkv.sglang.hicache.SgkvHiCache"]
    if "interface_v1" in added:
        said.append("zero-copy transfers")
    if "hicache_storage_pass_prefix_keys" in added:
        said.append("prefix keys for 256-token chunks")
    return {**added, **given, **forced}, said


def read_extra_config(text: str | None) -> dict[str, Any]:
    """Parse ``--hicache-storage-backend-extra-config``: JSON, or ``@file`` of JSON, TOML or YAML."""
    from sgkv.config.sources import read_file

    if not text:
        return {}
    if text.startswith("@"):
        return read_file(Path(text[1:]))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--hicache-storage-backend-extra-config is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - one error type for everything wrong with the text
            f"--hicache-storage-backend-extra-config is {type(value).__name__}, not an object of settings"
        )
    return value
