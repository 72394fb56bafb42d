"""The CPU tier keeps the contract, alone and under each wrapper."""

from __future__ import annotations

from pathlib import Path

from sgkv.backends.base import Backend
from sgkv.backends.cpu import CpuBackend
from tests.backends.contract import BackendTests


class TestCpu(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return CpuBackend(capacity)
