"""File systems under the disk tiers: what they are, what room they have, how fast they are."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sgkv.config import ResolvedConfig, ResolvedDisk
from sgkv.config.units import approximate_size
from sgkv.doctor.finding import Finding, note, ok, problem

TOPIC = "disks"
_BLOCK = 8 << 20
_BLOCKS = 8
"""What the speed is measured with: 64 MiB in blobs of 8 MiB."""
_SLOW = 300e6
"""Bytes a second. A chunk of an 8B model is 32 MiB, which one GPU computes in some 30 ms."""
_VOLATILE = frozenset({"tmpfs", "ramfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "virtiofs"})
_LAYERED = frozenset({"overlay", "aufs"})
_FILES_A_GIB = 128
"""Chunks of 8 MiB; small models have more."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The facts about the file system of a path; tests state their own."""

    kind: str
    """As the kernel names it: ``ext4``, ``tmpfs``."""
    free_files: int | None
    """Files that may still be made; None where the file system has no such limit."""
    written: float | None
    """Bytes a second, synced; None where it could not be measured."""
    read: float | None
    """Bytes a second, not from the page cache as far as the kernel lets go of it."""


def this_disk(path: Path) -> Disk:
    """Look, and measure with 64 MiB in a nameless file, at `path` or the nearest folder above it."""
    folder = next(at for at in (path, *path.parents) if at.is_dir())
    facts = os.statvfs(folder)
    written, read = _speeds(folder, facts.f_bavail * facts.f_frsize)
    return Disk(_kind(folder), facts.f_favail if facts.f_files else None, written, read)


def examine(config: ResolvedConfig) -> Iterator[Finding]:
    """Each disk tier of the configuration, on the machine we run on."""
    for tier in config.tiers:
        if isinstance(tier, ResolvedDisk):
            yield from judge(tier, this_disk(tier.path))


def judge(tier: ResolvedDisk, disk: Disk) -> Iterator[Finding]:
    """What the facts mean for a tier."""
    name = f"{tier.tier.name} at {tier.path}"
    yield ok(TOPIC, f"{name}: {disk.kind}, {approximate_size(tier.capacity)} of capacity")
    yield from _nature(name, disk)
    files = tier.capacity * _FILES_A_GIB >> 30
    if disk.free_files is not None and disk.free_files < files:
        yield problem(
            TOPIC,
            f"{name}: only {disk.free_files} files may be made there, and its capacity may take {files}",
            "free inodes, or make the file system with more (mkfs.ext4 -N)",
        )
    for verb, speed in (("written", disk.written), ("read", disk.read)):
        if speed is not None and speed < _SLOW:
            yield note(
                TOPIC,
                f"{name}: {speed / 1e6:.0f} MB/s were {verb}: computing again may be faster than loading",
                "use a local NVMe",
            )


def _nature(name: str, disk: Disk) -> Iterator[Finding]:
    if disk.kind in _VOLATILE:
        yield problem(
            TOPIC,
            f"{name} is memory ({disk.kind}): nothing of it survives the machine, and it takes what the cpu "
            "tier could use",
            "name a folder on a disk, or leave the tier out and enlarge the cpu tier",
        )
    elif disk.kind in _LAYERED:
        yield note(
            TOPIC,
            f"{name} lies in the container's own layer ({disk.kind}): it is gone when the container is",
            "mount a volume there",
        )
    elif disk.kind in _REMOTE:
        yield note(
            TOPIC,
            f"{name} is on a network ({disk.kind}): when that hangs, reads and writes end at their deadlines",
            "prefer a local disk, and an s3 tier for what machines share",
        )


def _kind(folder: Path) -> str:
    """The type of the innermost mount above `folder` (proc(5), /proc/pid/mountinfo)."""
    real = folder.resolve()
    mounts: dict[Path, str] = {}
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    for line in lines:
        before, _, after = line.partition(" - ")
        mounts[Path(before.split()[4].encode().decode("unicode_escape"))] = after.split()[0]
    return next((mounts[at] for at in (real, *real.parents) if at in mounts), "unknown")


def _speeds(folder: Path, free: int) -> tuple[float | None, float | None]:
    """Bytes a second (written, read); None for what the folder does not allow, or has no room for."""
    size = _BLOCK * _BLOCKS
    if free < 4 * size:
        return None, None
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return size / _seconds_to_write(file.fileno()), size / _seconds_to_read(file.fileno())
    except OSError:
        return None, None


def _seconds_to_write(fd: int) -> float:
    block = os.urandom(_BLOCK)
    began = time.perf_counter()
    for at in range(_BLOCKS):
        os.pwrite(fd, block, at * _BLOCK)
    os.fdatasync(fd)
    return time.perf_counter() - began


def _seconds_to_read(fd: int) -> float:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    into = bytearray(_BLOCK)
    began = time.perf_counter()
    for at in range(_BLOCKS):
        os.preadv(fd, [into], at * _BLOCK)
    return time.perf_counter() - began
