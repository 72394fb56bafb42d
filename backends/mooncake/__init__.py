"""Blobs in memory that is pooled over machines by Mooncake Store; imports the library only when opened."""

from sgkv.backends.mooncake.backend import MooncakeBackend
from sgkv.backends.mooncake.library import LibraryMissingError
from sgkv.backends.mooncake.options import MooncakeOptions

__all__ = ["LibraryMissingError", "MooncakeBackend", "MooncakeOptions"]
