"""Compile SGLang's page-hash extension, which it otherwise compiles while the first request waits."""

from __future__ import annotations

import os
import subprocess
import sys

from sgkv.sglang.cpu.environment import cpu_environment

LOAD = "from sglang.srt.mem_cache.cpp_utils import native_hash; native_hash._load_native_hash_module()"
LIMIT_S = 600


def main() -> int:
    """Build in a process of its own: the stand-ins for GPU packages act at interpreter start."""
    command = [sys.executable, "-c", LOAD]
    done = subprocess.run(
        command,
        env=os.environ | cpu_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        print(f"SGLang's page-hash extension did not build:\n{done.stdout}{done.stderr}", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
