"""What is least likely to be used again soon, by what was seen of its kind, goes first."""

from __future__ import annotations

from sgkv.backends.eviction.reuse.policy import Reuse

__all__ = ["Reuse"]
