"""Two disk tiers, as a bucket and a node would be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sgkv.backends.disk import DiskBackend
from tests.prewarm.blobs import disk


@pytest.fixture
def far(tmp_path: Path) -> Iterator[DiskBackend]:
    backend = disk(tmp_path / "far")
    yield backend
    backend.close()


@pytest.fixture
def near(tmp_path: Path) -> Iterator[DiskBackend]:
    backend = disk(tmp_path / "near")
    yield backend
    backend.close()
