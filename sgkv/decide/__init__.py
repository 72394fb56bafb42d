"""Whether KV that is there is worth loading."""

from __future__ import annotations

from sgkv.decide.gate import Decision, Gate, Mode
from sgkv.decide.judging import Judge, Verdict
from sgkv.decide.prefill import Prefill
from sgkv.decide.speed import TierSpeed

__all__ = ["Decision", "Gate", "Judge", "Mode", "Prefill", "TierSpeed", "Verdict"]
