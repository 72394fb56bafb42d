"""Servers of the s3 tests, each started once, and backends on them that are closed in the end."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from sgkv.backends.s3 import S3Backend, S3Options
from sgkv.testing.s3.double import S3Double
from sgkv.testing.s3.weed import SeaweedServer

Open = Callable[..., S3Backend]


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """A real server that nobody kills."""
    with SeaweedServer(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def express_endpoint() -> Iterator[str]:
    """Directory buckets, served by a process of their own: threads here are then the backend's."""
    command = [sys.executable, "-m", "sgkv.testing.s3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(30)


@pytest.fixture
def double() -> Iterator[S3Double]:
    """A server in this process, to be turned at will."""
    with S3Double() as server:
        yield server


@pytest.fixture
def open_s3() -> Iterator[Open]:
    """Open a backend under a prefix of its own, unless the options have one."""
    opened: list[S3Backend] = []

    def opener(options: S3Options, **settings: object) -> S3Backend:
        opened.append(S3Backend(options, **settings))
        return opened[-1]

    yield opener
    for backend in opened:
        backend.close()


@pytest.fixture
def prefix() -> str:
    """Of a test's own objects in a bucket that others use too."""
    return f"{uuid.uuid4().hex}/"
