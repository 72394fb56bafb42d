"""The mooncake tier keeps the contract where the pool behind it lets it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import Backend, Status
from sgkv.backends.guard import Guarded
from sgkv.backends.mooncake import MooncakeBackend
from tests.backends.blobs import key_of, put
from tests.backends.contract_concurrency import ConcurrencyTests
from tests.backends.contract_data import DataTests
from tests.backends.contract_deadline import DeadlineTests
from tests.backends.contract_lifetime import LifetimeTests
from tests.mooncake.pool import Pool

pytestmark = pytest.mark.slow


class PoolTests(DataTests, DeadlineTests, ConcurrencyTests, LifetimeTests):
    """All of the contract but capacity and the order of eviction, which are the master's own."""

    @pytest.fixture(autouse=True)
    def _on(self, pool: Pool):
        self.pool = pool

    def build(self, folder: Path, capacity: int) -> Backend:
        """With nothing of ours in the pool."""
        backend = MooncakeBackend(self.pool.options())
        backend.delete([blob.key for blob in backend.scan()])
        return backend

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        backend = self.build(tmp_path, 0)
        yield backend
        backend.close()

    def test_a_whole_blob_of_no_bytes(self, backend: Backend):
        """The library reports success for it and stores nothing."""
        assert put(backend, key_of(1), b"") is Status.ERROR
        assert backend.contains([key_of(1)]) == [False]


class TestMooncake(PoolTests):
    pass


class TestGuardedMooncake(PoolTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        inner = super().build(folder, capacity)
        return Guarded(inner, contains_deadline=10.0, get_deadline=20.0, put_deadline=20.0)
