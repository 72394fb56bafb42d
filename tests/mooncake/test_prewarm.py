"""`sgkv prewarm` with a pool as target and source."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sgkv.cli.app import app
from tests.mooncake.pool import Pool
from tests.prewarm.blobs import contents, disk, fill

pytestmark = pytest.mark.slow


def test_what_a_run_puts_into_a_pool_outlives_the_run(pool: Pool, tmp_path: Path):
    """Also where the tier's settings have servers give memory: a run gives none, which would go with it."""
    node = {
        "type": "disk",
        "name": "near",
        "path": str(tmp_path / "near"),
        "capacity": "64MiB",
        "min_free": 0,
    }
    other = {**node, "name": "other", "path": str(tmp_path / "other")}
    pooled = {
        "type": "mooncake",
        "master": pool.master.address,
        "admin": pool.master.admin.url,
        "segment": "64MiB",
    }
    config = tmp_path / "sgkv.yaml"
    config.write_text(yaml.safe_dump({"tiers": [node, other, pooled]}))
    near = disk(tmp_path / "near")
    fill(near, 20)
    before = contents(near)
    near.close()
    for command in ("push", "pull"):
        ends = ("near", "mooncake") if command == "push" else ("mooncake", "other")
        done = CliRunner().invoke(
            app, ["prewarm", command, "--config", str(config), "--from", ends[0], "--to", ends[1], "--quiet"]
        )
        assert done.exit_code == 0, done.output
    pulled = disk(tmp_path / "other")
    assert contents(pulled) == before
    pulled.close()
