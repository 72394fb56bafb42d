"""A backend in its place in the order."""

from __future__ import annotations

from dataclasses import dataclass

from sgkv.backends.base import Backend
from sgkv.backends.cpu import CpuBackend


@dataclass(frozen=True, slots=True)
class Tier:
    """One place for KV.

    A tier with an `arena` holds single pages without headers, keyed by page (the cpu tier); every
    other tier holds chunk blobs, and page blobs for pages outside a full chunk.
    """

    name: str
    backend: Backend
    arena: CpuBackend | None = None
    """The same backend, where its memory can be leased."""
    promote: bool = True
    """Copy what is read from here into the arena tier above, if there is one."""
