"""What a trace would have gained from a store: policies, sizes and links compared on a virtual clock."""

from __future__ import annotations

from sgkv.replay.run import run

__all__ = ["run"]
