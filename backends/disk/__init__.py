"""The disk tier: a file a blob, shared by every process that opens the folder."""

from sgkv.backends.disk.backend import DiskBackend

__all__ = ["DiskBackend"]
