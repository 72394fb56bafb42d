"""The disk tier keeps the contract."""

from __future__ import annotations

from pathlib import Path

from sgkv.backends.base import Backend
from sgkv.backends.disk import DiskBackend
from tests.backends.contract import BackendTests


class TestDisk(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return DiskBackend(folder / "tier", capacity, min_free_bytes=0)
