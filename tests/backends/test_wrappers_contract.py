"""Every wrapper keeps the contract of what it wraps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sgkv.backends.base import Backend, GetItem, PutItem, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.cpu import CpuBackend
from sgkv.backends.deadline import Deadline
from sgkv.backends.disk import DiskBackend
from sgkv.backends.faulty import Faulty
from sgkv.backends.guard import Guarded
from sgkv.backends.metered import Metered
from sgkv.backends.simulated import Simulated
from sgkv.backends.wrapper import Wrapper
from tests.backends.contract import BackendTests


class Stubborn(Wrapper):
    """A backend that knows nothing of deadlines, as the client of a remote store may be."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.capabilities = replace(inner.capabilities, abandonable=False)

    def put(self, items: Sequence[PutItem], deadline: Deadline | None = None) -> list[Status]:
        return self.inner.put(items)

    def get(self, items: Sequence[GetItem], deadline: Deadline | None = None) -> list[Status]:
        return self.inner.get(items)


class Silent:
    """Observes and tells nobody."""

    def observe(self, op: str, seconds: float, outcomes: Mapping[Status, int], moved: int) -> None:
        assert seconds >= 0
        assert moved >= 0


def guarded(inner: Backend) -> Backend:
    """With time to spare, and patience with tests that fail on purpose."""
    patience = BreakerPolicy(consecutive_failures=1000, window=1000)
    return Guarded(inner, contains_deadline=10.0, get_deadline=20.0, put_deadline=20.0, breaker=patience)


class TestGuardedCpu(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return guarded(CpuBackend(capacity))


class TestGuardedDisk(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return guarded(DiskBackend(folder / "tier", capacity, min_free_bytes=0))


class TestGuardedStubborn(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return guarded(Stubborn(CpuBackend(capacity)))


class TestMetered(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return Metered(DiskBackend(folder / "tier", capacity, min_free_bytes=0), Silent())


class TestFaultyWithoutFaults(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return Faulty(CpuBackend(capacity))


class TestSimulated(BackendTests):
    def build(self, folder: Path, capacity: int) -> Backend:
        return Simulated(CpuBackend(capacity), latency_s=1e-6, bandwidth_bytes_s=1e12)
