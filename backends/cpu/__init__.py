"""The CPU tier: blobs in one arena of this process."""

from sgkv.backends.cpu.backend import CpuBackend
from sgkv.backends.cpu.leases import Lease, Reservation

__all__ = ["CpuBackend", "Lease", "Reservation"]
