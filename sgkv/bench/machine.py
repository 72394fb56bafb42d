"""What figures depend on and do not say themselves."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sgkv.bench.effort import BenchError
from sgkv.bench.scratch import disk_home
from sgkv.config.machine import this_machine

Fact = str | int | float | None


def machine_facts() -> dict[str, Fact]:
    """The machine, how busy it is, and the versions measured; None where there is none."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": this_machine().memory,
        "available_memory_bytes": available_memory(),
        "load_average": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "scratch_file_system": _file_system(disk_home()),
        "python": platform.python_version(),
        "gpu": _gpu_model(),
        **{name: _version(name) for name in ("sgkv", "sglang", "torch", "triton")},
    }


def available_memory() -> int:
    """Bytes that can be used without swapping, as the kernel estimates it (proc(5), meminfo)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min(int(line.split()[1]) << 10, this_machine().memory)
    raise BenchError("/proc/meminfo does not say how much memory is available")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        field, _, value = line.partition(":")
        if field.strip() == "model name":
            return value.strip()
    return platform.machine()


def _gpu_model() -> str | None:
    """What NVIDIA's driver calls the first of its GPUs; None without that driver."""
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text().splitlines():
            field, _, value = line.partition(":")
            if field.strip() == "Model":
                return value.strip()
    return None


def _file_system(path: Path) -> str | None:
    """Type of the file system `path` lies on: of the mounts above it, the nearest."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    above = [(Path(point), kind) for _, point, kind, *_ in mounts if path.resolve().is_relative_to(point)]
    return max(above, key=lambda mount: len(mount[0].parts))[1] if above else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
