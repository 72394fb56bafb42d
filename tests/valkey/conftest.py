"""Servers of the valkey tests, each started once, and backends on them that are closed in the end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sgkv.backends.valkey import ValkeyBackend, ValkeyOptions
from sgkv.testing.valkey import ValkeyServer, cluster

Open = Callable[..., ValkeyBackend]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One that nobody kills."""
    with ValkeyServer(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[ValkeyServer]]:
    """A cluster of three that nobody kills."""
    with cluster(tmp_path_factory.mktemp("cluster"), 3) as running:
        yield running


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server of a test's own."""
    with ValkeyServer(tmp_path / "victim") as running:
        yield running


@pytest.fixture
def open_valkey() -> Iterator[Open]:
    """Open a backend; every one opened is closed in the end."""
    opened: list[ValkeyBackend] = []

    def opener(options: ValkeyOptions, **settings: object) -> ValkeyBackend:
        opened.append(ValkeyBackend(options, **settings))
        return opened[-1]

    yield opener
    for backend in opened:
        backend.close()


@pytest.fixture
def prefix() -> str:
    """Of a test's own keys on a server that others use too."""
    return f"{uuid.uuid4().hex}/"
