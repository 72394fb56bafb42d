"""The CPU tier keeps the contract, alone and under each wrapper."""

from __future__ import annotations

from pathlib import Path

from sgkv.backends.base import Backend
from sgkv.backends.cpu import CpuBackend
from tests.backends.contract import BackendTests


class TestCpu(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return CpuBackend(capacity)


class TestCpuS3Fifo(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return CpuBackend(capacity, eviction="s3fifo")

    # One use is not enough to stay, and queues keep the order of arrival: tests/backends/test_policies.py.
    test_get_is_a_use = None
    test_touch_is_a_use_and_the_last_is_the_most_recent = None


class TestCpuReuse(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return CpuBackend(capacity, eviction="reuse")
