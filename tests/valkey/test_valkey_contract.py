"""The valkey tier keeps the contract, on a real server and in a cluster of three."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from sgkv.backends.base import Backend
from sgkv.backends.valkey import ValkeyBackend, ValkeyOptions
from sgkv.testing.valkey import ValkeyServer
from tests.backends.contract import BackendTests

pytestmark = pytest.mark.slow


def opened(options: ValkeyOptions, folder: Path, capacity: int) -> Backend:
    """With what an earlier one left counted."""
    prefix = f"{sha256(str(folder).encode()).hexdigest()[:32]}/"
    backend = ValkeyBackend(replace(options, prefix=prefix), capacity=capacity)
    assert backend.wait_seen(30)
    return backend


class TestOnOneServer(BackendTests):
    @pytest.fixture(autouse=True)
    def _server(self, server: ValkeyServer) -> None:
        self.options = server.options

    def build(self, folder: Path, capacity: int) -> Backend:
        return opened(self.options, folder, capacity)


class TestInACluster(BackendTests):
    @pytest.fixture(autouse=True)
    def _server(self, nodes: Sequence[ValkeyServer]) -> None:
        self.options = nodes[0].options

    def build(self, folder: Path, capacity: int) -> Backend:
        return opened(self.options, folder, capacity)
