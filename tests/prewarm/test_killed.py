"""SIGKILL in the middle of a run, again and again: nothing is done twice but what was under way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prewarm.driver import WORKERS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("what", ["copy", "verify"])
def test_a_run_that_is_killed_again_and_again(what: str, tmp_path: Path) -> None:
    """And the end state is that of a run that nobody killed, which the driver looks at."""
    driver = subprocess.run(
        [sys.executable, "-m", "tests.prewarm.driver", what, str(tmp_path), "--kills", "12"],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a process that forks has no threads
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert driver.returncode == 0, driver.stderr
    seen = json.loads(driver.stdout)
    assert seen["killed"] >= 5
    assert seen["distinct"] == seen["blobs"]
    assert seen["read"] <= seen["blobs"] + seen["killed"] * WORKERS
