"""The measurements that are too long for the benchmark suites still run, on a small scale."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_SCRIPTS = Path(__file__).parents[2] / "scripts"


def _run(script: str, *arguments: str) -> list[dict[str, float]]:
    done = subprocess.run(
        [sys.executable, str(_SCRIPTS / script), *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_scale_measures_each_size_and_leaves_nothing(tmp_path: Path) -> None:
    small, larger = _run("scale.py", "200", "800", "--home", str(tmp_path))
    assert (small["blobs"], larger["blobs"]) == (200, 800)
    for figures in (small, larger):
        assert figures["first_hit_ms"] <= 1000
        assert figures["index_complete_s"] <= 5
        assert figures["lookup_ms"] <= figures["lookup_while_scanning_ms"]
        assert figures["evict_us_a_blob"] > 0
    assert not list(tmp_path.iterdir())


def test_the_cost_of_fsync_is_measured_for_each_size(tmp_path: Path) -> None:
    rows = _run("fsync_cost.py", "--home", str(tmp_path), "--rounds", "1")
    assert [row["blob_bytes"] for row in rows] == [64 << 10, 1 << 20, 4 << 20]
    assert all(row["data"] > 0 < row["none"] for row in rows)
    assert not list(tmp_path.iterdir())
