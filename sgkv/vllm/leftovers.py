"""Host memory of vLLM engines that were killed: files in /dev/shm that nobody maps any more.

vLLM 0.32 keeps its primary tier in ``/dev/shm/vllm_offload_<engine id>.mmap`` and removes the file only
when it shuts down in order (`cpu/shared_offload_region.py`).
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

_FOLDER = Path("/dev/shm")  # noqa: S108 - vLLM's choice
_SETTLED_SECONDS = 60.0
"""A younger file may be one that its engine is about to map."""


def orphans(folder: Path = _FOLDER, settled: float = _SETTLED_SECONDS) -> list[Path]:
    """Files of vLLM's in `folder`, at least `settled` seconds old, that no process has mapped.

    Only processes of the same user can be looked into, so files of others count as mapped.
    """
    found = {path for path in folder.glob("vllm_offload_*.mmap") if _own_and_old(path, settled)}
    if found:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may end while we look, or be another user's
                found -= set(map(Path, re.findall(r"/\S+/vllm_offload_\S+", (process / "maps").read_text())))
    return sorted(found)


def _own_and_old(path: Path, settled: float) -> bool:
    with suppress(OSError):
        return path.owner() == Path("/proc/self").owner() and time.time() - path.stat().st_mtime >= settled
    return False


def describe(files: list[Path]) -> str:
    """One line for the log."""
    size = sum(path.stat().st_size for path in files if path.exists())
    names = " ".join(map(str, files))
    return f"{len(files)} files of killed vLLM engines hold {size / 2**20:.0f} MiB: rm {names}"
