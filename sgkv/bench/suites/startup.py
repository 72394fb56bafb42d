"""What `import sgkv` adds to the start of every process of an engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import interleave

_TIMEOUT = 60.0
_HAS_TORCH = 3
_IMPORT = f"import sgkv, sys; sys.exit({_HAS_TORCH} if 'torch' in sys.modules else 0)"


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """A fresh interpreter that imports sgkv, beside one that does nothing."""
    programs = {"bare": "pass", "sgkv": _IMPORT}
    starts = {name: partial(_start, program) for name, program in programs.items()}
    series = interleave(starts, effort.rounds)
    seconds = max(0.0, series["sgkv"].wall_beyond(series["bare"]))
    bar = Bar("value", "<=", 0.2, "s, without torch")
    yield Record("startup", "import_sgkv", seconds, "s", bars=(bar,))


def _start(program: str) -> None:
    command = [sys.executable, "-c", program]
    code = subprocess.run(command, timeout=_TIMEOUT, check=False).returncode  # noqa: S603 - both are ours
    if code == _HAS_TORCH:
        raise BenchError("import sgkv loads torch")
    if code:
        raise BenchError(f"python -c {program!r} exits with {code}")
