"""The tier that vLLM loads, in an environment that has vLLM, beside pwritev and preadv of one file a row."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Iterator

from sgkv.bench.effort import BenchError, Effort
from sgkv.bench.records import Record
from sgkv.bench.scratch import Scratch
from sgkv.testing.vllm import vllm_python
from sgkv.vllm.cpu import cpu_environment

_SECONDS = 600


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``tier_store_1MiB``, ``tier_load_1MiB``, and ``tier_lookup_400`` with the step before it."""
    memory, disk = scratch.memory(), scratch.disk()
    python, found = vllm_python(), disk / "records"
    if not python.exists():
        raise BenchError(f"{python} is not there: `make setup-vllm` builds an environment with vLLM")
    figures = (str(effort.scale), str(effort.rounds))
    command = [str(python), "-m", "sgkv.bench.tiered", *figures, str(memory), str(disk)]
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=cpu_environment()
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(str(error)) from error
    if done.returncode:
        raise BenchError(done.stderr.strip().splitlines()[-1] if done.stderr else "it ended without a word")
    yield from pickle.loads(found.read_bytes())  # noqa: S301 - what our own child wrote
