"""Two thousand processes killed with SIGKILL, and what the next one finds.

Each checks, before it goes on and dies itself: no wrong byte is readable, nothing is lost whose put had
returned (but what was evicted), nothing deleted is back, neither temporary files nor trash are left,
quarantine is bounded, and the quota counts exactly the files there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.failpoints import POINTS

CRASHES = {
    "roomy": 490,
    "evicting": 490,
    "any moment": 380,
    "together": 400,
    "store": 210,
    "store without memory": 60,
}
_SECONDS = 200
"""What the busiest machine may take; a quiet one needs an eighth of it."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(_SECONDS + 60)]


def _start(scenario: str, folder: Path) -> subprocess.Popen[str]:
    arguments = [scenario, str(folder), "--crashes", str(CRASHES[scenario]), "--seconds", str(_SECONDS)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.driver", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a process that forks has no threads
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    started = {scenario: _start(scenario, tmp_path_factory.mktemp("crash") / "tier") for scenario in CRASHES}
    yield started
    for driver in started.values():
        driver.kill()
        driver.communicate()


@pytest.fixture(scope="module")
def crashes(drivers: dict[str, subprocess.Popen[str]]) -> dict[str, tuple[Counter[str], str]]:
    """For each scenario: how often each place killed, and what was complained about."""
    ended: dict[str, tuple[Counter[str], str]] = {}
    for scenario, driver in drivers.items():
        out, complaints = driver.communicate(timeout=_SECONDS + 30)
        ended[scenario] = (Counter(json.loads(out)) if out else Counter(), complaints)
    return ended


@pytest.mark.parametrize("scenario", CRASHES)
def test_what_was_promised_survives_the_crash(
    crashes: dict[str, tuple[Counter[str], str]], scenario: str
) -> None:
    counts, complaints = crashes[scenario]
    if complaints:
        pytest.fail(complaints)
    assert counts.total() >= CRASHES[scenario]


def test_at_least_two_thousand_processes_were_killed_and_at_every_place(
    crashes: dict[str, tuple[Counter[str], str]],
) -> None:
    counts = sum((counts for counts, _ in crashes.values()), Counter[str]())
    assert counts.total() >= 2000
    assert {point for point in POINTS if counts[point] < 10} == set()
