"""Policies of eviction behind one interface."""

from __future__ import annotations

from collections.abc import Callable

from sgkv.backends.eviction.base import EvictionPolicy
from sgkv.backends.eviction.lru import Lru
from sgkv.backends.eviction.reuse import Reuse
from sgkv.backends.eviction.s3fifo import S3Fifo

__all__ = ["POLICIES", "EvictionPolicy", "Lru", "Reuse", "S3Fifo", "make_policy"]

POLICIES: dict[str, Callable[[], EvictionPolicy]] = {"lru": Lru, "s3fifo": S3Fifo, "reuse": Reuse}


def make_policy(name: str) -> EvictionPolicy:
    """The policy a configuration names. Raises ValueError for a name there is no policy of."""
    if name not in POLICIES:
        raise ValueError(f"unknown eviction policy {name!r}; choose one of {sorted(POLICIES)}")
    return POLICIES[name]()
