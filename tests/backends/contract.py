"""The rules of `Backend` as tests. A backend is one when a subclass of these passes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.base import Backend
from tests.backends.contract_capacity import CapacityTests
from tests.backends.contract_concurrency import ConcurrencyTests
from tests.backends.contract_data import DataTests
from tests.backends.contract_deadline import DeadlineTests
from tests.backends.contract_lifetime import LifetimeTests
from tests.backends.contract_model import ModelTests

CAPACITY = 4 << 20


class BackendTests(DataTests, CapacityTests, DeadlineTests, ConcurrencyTests, LifetimeTests, ModelTests):
    """Subclass with `build` and nothing more."""

    @abstractmethod
    def build(self, folder: Path, capacity: int) -> Backend:
        """A backend that is empty but for what an earlier one left in `folder`."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        backend = self.build(tmp_path, CAPACITY)
        yield backend
        backend.close()
