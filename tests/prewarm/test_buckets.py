"""Buckets as source and target: directory buckets on a double, a real server in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sgkv.backends.base import PutItem
from sgkv.backends.s3 import S3Backend
from sgkv.backends.s3.options import S3Options
from sgkv.testing.s3 import BUCKET, DIRECTORY_BUCKET, tier_settings
from sgkv.testing.s3.double import S3Double, make_buckets
from sgkv.testing.s3.mischief import Trouble
from sgkv.testing.s3.weed import SeaweedServer
from sgkv.testing.waiting import wait_until
from tests.prewarm.blobs import OTHER, SIZE, contents, disk, fill
from tests.prewarm.test_commands import ROOT, prewarm, stored

pytestmark = pytest.mark.slow

UNDER_WAY = 4
"""Blobs that a push works on at once, unless it is told otherwise."""
OTHER_ZONE = "sgkv--use1-az5--x-s3"


@pytest.fixture
def double() -> Iterator[S3Double]:
    with S3Double() as server:
        make_buckets(server.endpoint, OTHER_ZONE)
        yield server


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Of this test alone: moto's buckets live as long as the process."""
    return f"{tmp_path.name}/"


def configured(folder: Path, endpoint: str, prefix: str, *buckets: str, **settings: object) -> Path:
    """A node's disk, and the buckets, as tiers called disk, one, two."""
    tiers = [{"type": "disk", "path": str(folder / "disk"), "capacity": "64MiB", "min_free": 0}]
    names = ("one", "two")
    for name, bucket in zip(names, buckets):  # noqa: B905
        tiers.append(tier_settings(endpoint, bucket, name=name, prefix=prefix, **settings))
    path = folder / "sgkv.yaml"
    path.write_text(yaml.safe_dump({"tiers": tiers}))
    return path


def bucket(options: S3Options) -> dict[str, bytes]:
    """What is in a bucket, as somebody else sees it."""
    backend = S3Backend(options)
    found = contents(backend)
    backend.close()
    return found


def fill_bucket(options: S3Options, count: int, namespace: str) -> list[str]:
    backend = S3Backend(options)
    keys = fill(backend, count, namespace)
    backend.close()
    return keys


class TestDirectoryBuckets:
    def test_from_a_node_to_a_bucket_to_another_zone_to_another_node(self, double, prefix, tmp_path):
        near = disk(tmp_path / "disk")
        fill(near, 12)
        before = contents(near)
        near.close()
        config = configured(tmp_path, double.endpoint, prefix, DIRECTORY_BUCKET, OTHER_ZONE)
        assert prewarm("push", "--config", config, "--to", "one").exit_code == 0
        assert bucket(double.options(DIRECTORY_BUCKET, prefix=prefix)) == before
        sync = ["sync", "--config", config, "--from", "one", "--to", "two"]
        double.mischief.requests.clear()
        assert prewarm(*sync, "--dry-run").exit_code == 0
        assert {method for method, _ in double.mischief.requests} <= {"GET", "HEAD"}
        assert bucket(double.options(OTHER_ZONE, prefix=prefix)) == {}
        assert prewarm(*sync).exit_code == 0
        (tmp_path / "node").mkdir()
        other = configured(tmp_path / "node", double.endpoint, prefix, OTHER_ZONE)
        assert prewarm("pull", "--config", other).exit_code == 0
        pulled = disk(tmp_path / "node" / "disk")
        assert contents(pulled) == before
        pulled.close()

    def test_both_ways(self, double, prefix, tmp_path):
        one, two = (double.options(name, prefix=prefix) for name in (DIRECTORY_BUCKET, OTHER_ZONE))
        fill_bucket(one, 3, OTHER)
        fill_bucket(two, 2, "ab" * 16)
        config = configured(tmp_path, double.endpoint, prefix, DIRECTORY_BUCKET, OTHER_ZONE)
        assert prewarm("sync", "--config", config, "--from", "one", "--to", "two", "--both").exit_code == 0
        assert bucket(one) == bucket(two)
        assert len(bucket(one)) == 5

    def test_one_session_a_bucket_and_one_read_a_blob(self, double, prefix, tmp_path):
        fill_bucket(double.options(DIRECTORY_BUCKET, prefix=prefix), 10, OTHER)
        double.mischief.requests.clear()
        config = configured(tmp_path, double.endpoint, prefix, DIRECTORY_BUCKET)
        assert prewarm("pull", "--config", config).exit_code == 0
        requests = double.mischief.requests
        blobs = [path for method, path in requests if method == "GET" and OTHER in path]
        assert sorted(Counter(blobs).values()) == [1] * 10
        assert len(requests) <= 10 + 3, "a listing, a session, and one more of boto3's"

    def test_a_namespace_is_listed_by_itself(self, double, prefix, tmp_path):
        options = double.options(DIRECTORY_BUCKET, prefix=prefix)
        fill_bucket(options, 3, OTHER)
        keys = fill_bucket(options, 2, "ab" * 16)
        config = configured(tmp_path, double.endpoint, prefix, DIRECTORY_BUCKET)
        assert prewarm("pull", "--config", config, "--namespace", "ab" * 16).exit_code == 0
        assert stored(tmp_path / "disk") == set(keys)


class TestTrouble:
    def test_a_bucket_that_cannot_be_listed_is_exit_code_3(self, tmp_path, prefix):
        config = configured(tmp_path, "http://127.0.0.1:9", prefix, BUCKET, connect_timeout=0.2)
        done = prewarm("pull", "--config", config)
        assert done.exit_code == 3
        assert "cannot be listed" in done.output

    def test_a_storm_of_errors_passes(self, double, prefix, tmp_path):
        fill_bucket(double.options(BUCKET, prefix=prefix), 6, OTHER)
        config = configured(tmp_path, double.endpoint, prefix, BUCKET, attempts=1)
        left = iter(range(4))

        def storm(method: str, path: str) -> Trouble | None:
            return Trouble(503, "SlowDown") if OTHER in path and next(left, None) is not None else None

        double.mischief.choose = storm
        done = prewarm("pull", "--config", config, "--json", tmp_path / "report.json")
        assert done.exit_code == 0, done.output
        assert json.loads((tmp_path / "report.json").read_text())["retries"] >= 1
        assert len(stored(tmp_path / "disk")) == 6

    def test_bad_objects_are_found_and_deleted(self, double, prefix, tmp_path):
        options = double.options(BUCKET, prefix=prefix)
        keys = fill_bucket(options, 3, OTHER)
        backend = S3Backend(options)
        (good, *_) = contents(backend).values()
        backend.delete([keys[1]])
        backend.put([PutItem(keys[1], [memoryview(good[:-1] + b"?")])])
        backend.close()
        config = configured(tmp_path, double.endpoint, prefix, BUCKET)
        assert prewarm("pull", "--config", config).exit_code == 1
        assert stored(tmp_path / "disk") == {keys[0], keys[2]}
        assert prewarm("verify", "--config", config, "--tier", "one", "--delete").exit_code == 1
        assert set(bucket(options)) == {keys[0], keys[2]}
        assert prewarm("verify", "--config", config, "--tier", "one").exit_code == 0


@pytest.mark.slow
class TestARealServer:
    @pytest.fixture
    def weed(self, tmp_path: Path) -> Iterator[SeaweedServer]:
        with SeaweedServer(tmp_path / "weed") as server:
            yield server

    def test_a_push_that_is_killed_goes_on(self, weed, prefix, tmp_path):
        near = disk(tmp_path / "disk")
        fill(near, 60)
        before = contents(near)
        near.close()
        config = configured(tmp_path, weed.endpoint, prefix, BUCKET)
        options = weed.options(prefix=prefix)
        command = [sys.executable, "-m", "sgkv", "prewarm", "push", "--config", str(config)]
        watching = S3Backend(options)
        with subprocess.Popen([*command, "--bandwidth", str(20 * SIZE), "--quiet"], cwd=ROOT) as process:
            wait_until(lambda: len(list(watching.scan())) >= 5, "the first objects", 60)
            process.kill()
        there = len(list(watching.scan()))
        watching.close()
        assert there < 60
        done = prewarm("push", "--config", config, "--json", tmp_path / "report.json")
        assert done.exit_code == 0, done.output
        outcomes = json.loads((tmp_path / "report.json").read_text())["outcomes"]
        present = outcomes["present"]["items"]
        # The server may have received more than it showed when the client was killed.
        assert there <= present <= there + UNDER_WAY
        assert outcomes["copied"]["items"] == 60 - present
        assert bucket(options) == before
