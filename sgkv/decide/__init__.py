"""Whether KV that is there is worth loading."""

from __future__ import annotations

from sgkv.decide.gate import Decision, Gate, Mode
from sgkv.decide.prefill import Prefill
from sgkv.decide.speed import TierSpeed

__all__ = ["Decision", "Gate", "Mode", "Prefill", "TierSpeed"]
