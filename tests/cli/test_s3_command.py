"""`sgkv s3`: probing, pricing, and the lifecycle that goes with a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.testing.s3 import DIRECTORY_BUCKET, SECRET_KEY, tier_settings
from sgkv.testing.s3.double import S3Double


@pytest.fixture
def double() -> Iterator[S3Double]:
    with S3Double() as server:
        yield server


@pytest.fixture
def config(tmp_path: Path, double: S3Double) -> Path:
    tier = tier_settings(double.endpoint, DIRECTORY_BUCKET, prefix="fleet/")
    path = tmp_path / "sgkv.json"
    path.write_text(json.dumps({"ttl": "36h", "tiers": [{"type": "cpu", "capacity": "64MiB"}, tier]}))
    return path


def run(*words: object):
    return CliRunner().invoke(app, ["s3", *map(str, words)])


def test_a_bucket_that_works(config: Path) -> None:
    done = run("probe", "--config", config)
    assert done.exit_code == 0
    assert "by session" in done.output
    assert done.output.rstrip().endswith("usable")


def test_a_bucket_that_does_not(config: Path, double: S3Double) -> None:
    double.express.create_failures = 1000
    done = run("probe", "--config", config)
    assert done.exit_code == 1
    assert "NOT usable" in done.output


def test_the_lifecycle_is_one_that_s3_takes(config: Path) -> None:
    done = run("lifecycle", "--config", config)
    assert done.exit_code == 0
    (rule,) = json.loads(done.stdout)["Rules"]
    assert (rule["Filter"], rule["Expiration"]) == ({"Prefix": "fleet/"}, {"Days": 2})


def test_a_lifecycle_of_the_whole_bucket_is_warned_of(config: Path) -> None:
    config.write_text(config.read_text().replace("fleet/", ""))
    assert "other objects" in run("lifecycle", "--config", config).output


def test_a_terabyte_a_month(config: Path) -> None:
    done = run(
        "cost", "--config", config, "--stored", "1TB", "--written", "1TB", "--read", "1TB", "--processes", 0
    )
    assert done.exit_code == 0
    assert "110.00" in done.output
    assert "113.9" in done.output


def test_the_secret_is_never_printed(config: Path) -> None:
    done = CliRunner().invoke(app, ["config", "show", "--config", str(config)])
    assert done.exit_code == 0
    assert SECRET_KEY not in done.output


def test_without_a_bucket_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / "sgkv.json"
    path.write_text(json.dumps({"tiers": [{"type": "cpu"}]}))
    assert run("probe", "--config", path).exit_code == 2
    assert run("lifecycle", "--config", path, "--tier", "far").exit_code == 2


@pytest.mark.parametrize("setting", ["profile", "tls_ca"])
def test_what_cannot_be_opened_is_said_by_name(config: Path, setting: str) -> None:
    settings = json.loads(config.read_text())
    settings["tiers"][1] |= {setting: "/not/there", "endpoint": "https://127.0.0.1:9"}
    config.write_text(json.dumps(settings))
    done = run("probe", "--config", config)
    assert done.exit_code == 2
    assert "/not/there" in done.output
