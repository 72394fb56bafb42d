"""The gate of a configuration, and tiers that tell it how fast they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sgkv.config.model import GateConfig
from sgkv.decide import Gate, Mode, Prefill, TierSpeed
from sgkv.decide.speed import Timed
from sgkv.store.tier import Tier


def gated(tiers: Sequence[Tier], config: GateConfig) -> tuple[list[Tier], Gate]:
    """Tiers below memory with their reads timed, and the gate that knows them."""
    speeds = {tier.name: TierSpeed(config.quantile) for tier in tiers if tier.arena is None}
    gate = Gate(
        Mode(config.mode),
        Prefill(config.prefill_tokens_s, config.prefill_half_length),
        speeds,
        scatter_bytes_s=config.install or float("inf"),
        control_s=config.control,
    )
    return [_timed(tier, speeds.get(tier.name)) for tier in tiers], gate


def _timed(tier: Tier, speed: TierSpeed | None) -> Tier:
    return tier if speed is None else replace(tier, backend=Timed(tier.backend, speed))
