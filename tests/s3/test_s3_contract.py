"""The s3 tier keeps the contract, with either data plane, on a real server and in a directory bucket."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from sgkv.backends.base import Backend
from sgkv.backends.s3 import S3Backend, S3Options
from sgkv.testing.s3 import DIRECTORY_BUCKET
from sgkv.testing.s3.double import options_for
from sgkv.testing.s3.weed import SeaweedServer
from tests.backends.contract import BackendTests

pytestmark = pytest.mark.slow


def opened(options: S3Options, capacity: int) -> Backend:
    """With what an earlier one left counted."""
    backend = S3Backend(options, capacity=capacity)
    assert backend.wait_listed(30)
    return backend


def prefix_of(folder: Path) -> str:
    return f"{sha256(str(folder).encode()).hexdigest()[:32]}/"


class TestThinOnSeaweedFS(BackendTests):
    @pytest.fixture(autouse=True)
    def _server(self, weed: SeaweedServer) -> None:
        self.server = weed

    def build(self, folder: Path, capacity: int) -> Backend:
        return opened(self.server.options(prefix=prefix_of(folder)), capacity)


class TestBoto3OnSeaweedFS(BackendTests):
    @pytest.fixture(autouse=True)
    def _server(self, weed: SeaweedServer) -> None:
        self.server = weed

    def build(self, folder: Path, capacity: int) -> Backend:
        return opened(self.server.options(prefix=prefix_of(folder), plane="boto3"), capacity)


class TestThinInADirectoryBucket(BackendTests):
    @pytest.fixture(autouse=True)
    def _server(self, express_endpoint: str) -> None:
        self.endpoint = express_endpoint

    def build(self, folder: Path, capacity: int) -> Backend:
        return opened(options_for(self.endpoint, DIRECTORY_BUCKET, prefix=prefix_of(folder)), capacity)


class TestBoto3InADirectoryBucket(BackendTests):
    @pytest.fixture(autouse=True)
    def _server(self, express_endpoint: str) -> None:
        self.endpoint = express_endpoint

    def build(self, folder: Path, capacity: int) -> Backend:
        options = options_for(self.endpoint, DIRECTORY_BUCKET, prefix=prefix_of(folder), plane="boto3")
        return opened(options, capacity)
