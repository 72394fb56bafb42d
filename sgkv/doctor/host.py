"""Memory and limits of the machine, or of the container, that the engine will run on."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sgkv.config import ResolvedConfig, ResolvedCpu
from sgkv.config.machine import this_machine
from sgkv.config.units import approximate_size
from sgkv.doctor.finding import Finding, note, ok, problem

TOPIC = "machine"
_SHM = Path("/dev/shm")  # noqa: S108 - the kernel's name for it
_LEAST_FILES = 4096
"""A rank holds connections, files and arenas; a server its clients' sockets, too."""
_LEAST_SHM = 1 << 30
"""Docker gives 64 MiB; SGLang and vLLM exchange tensors there between their processes."""
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LARGE_ARENA = 8 << 30
"""From this size on, pages of 4 KiB cost more than they need to."""


@dataclass(frozen=True, slots=True)
class Host:
    """The facts; tests state their own."""

    memory: int
    """Bytes, or fewer where a container has a limit."""
    shm: int
    """Bytes that /dev/shm may hold."""
    open_files: int
    """The soft limit."""
    huge_pages: str
    """What the kernel does with transparent huge pages: ``always``, ``madvise``, ``never``, or unknown."""


def this_host() -> Host:
    """The machine we run on."""
    shm = os.statvfs(_SHM) if _SHM.is_dir() else None
    return Host(
        memory=this_machine().memory,
        shm=shm.f_blocks * shm.f_frsize if shm else 0,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        huge_pages=_huge_pages(),
    )


def examine(host: Host, config: ResolvedConfig | None, ranks: int = 1) -> Iterator[Finding]:
    """`ranks` processes on this machine open the configuration's store each."""
    yield ok(TOPIC, f"{approximate_size(host.memory)} of memory")
    if host.shm < _LEAST_SHM:
        yield problem(
            TOPIC,
            f"{_SHM} holds {approximate_size(host.shm)}: engines of several processes fail there",
            "run the container with --shm-size 16g, or with an emptyDir of medium Memory at /dev/shm",
        )
    if host.open_files < _LEAST_FILES:
        yield note(
            TOPIC, f"{host.open_files} files may be open at once", "ulimit -n 65536 before the server starts"
        )
    if config is not None:
        yield from _arenas(host, config, ranks)


def _arenas(host: Host, config: ResolvedConfig, ranks: int) -> Iterator[Finding]:
    arena = sum(tier.capacity for tier in config.tiers if isinstance(tier, ResolvedCpu))
    wanted = arena * ranks
    if ranks > 1 and wanted > host.memory:
        yield problem(
            TOPIC,
            f"the cpu tier takes {approximate_size(arena)} in each of {ranks} ranks, "
            f"{approximate_size(wanted)} in all, of {approximate_size(host.memory)}",
            f"capacity: {approximate_size(host.memory // 2 // ranks)} or less",
        )
    if arena >= _LARGE_ARENA and host.huge_pages == "never":
        yield note(
            TOPIC,
            "transparent huge pages are off: a large cpu tier is slower to fill and to copy",
            f"echo madvise > {_THP}",
        )


def _huge_pages() -> str:
    try:
        text = _THP.read_text()
    except OSError:
        return "unknown"
    return text.partition("[")[2].partition("]")[0]
