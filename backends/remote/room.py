"""Room for a blob on a server whose capacity this process counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgkv.backends.remote.known import KnownKeys

Remove = Callable[[Sequence[str]], Sequence[bool]]
"""Removes keys; says of each whether it is gone now, be it that it never was there."""


def claim(known: KnownKeys, size: int, remove: Remove) -> bool:
    """Set `size` bytes aside, evicting what it takes; False where that cannot be done."""
    if known.capacity is not None and size > known.capacity:
        return False
    while not known.claim(size):
        victims = known.take_victims(size)
        removed = remove([victim.key for victim in victims])
        gone = [victim for victim, is_gone in zip(victims, removed, strict=True) if is_gone]
        known.count_evicted(gone)
        if len(gone) < len(victims) or not victims:
            return False
    return True
