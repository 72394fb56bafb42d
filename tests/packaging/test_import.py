"""`import sgkv` is light: engines import it in each of their processes."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "boto3",
    "botocore",
    "mooncake",
    "numpy",
    "prometheus_client",
    "pydantic",
    "sglang",
    "torch",
    "triton",
    "typer",
    "valkey",
    "vllm",
    "yaml",
)
PROBE = """
import json, sys, time
start = time.perf_counter()
import sgkv
print(json.dumps([time.perf_counter() - start, sorted(name.partition(".")[0] for name in sys.modules)]))
"""


def probe() -> tuple[float, set[str]]:
    """Seconds that the import took in a fresh interpreter, and the top-level modules there then."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True
    )
    seconds, modules = json.loads(done.stdout)
    return seconds, set(modules)


def test_it_loads_nothing_heavy() -> None:
    _, modules = probe()
    assert "sgkv" in modules
    assert not modules & set(HEAVY)


def test_it_takes_no_time() -> None:
    assert min(probe()[0] for _ in range(3)) <= 0.2
