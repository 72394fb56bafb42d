"""What stands between the store and a tier below the arena: protection, measurement, chaos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sgkv.backends.base import Backend, Status
from sgkv.backends.breaker import BreakerPolicy
from sgkv.backends.faulty import Fault, FaultRule, Faulty
from sgkv.backends.guard import Guarded
from sgkv.backends.metered import Metered
from sgkv.backends.simulated import Simulated
from sgkv.config import DiskTier, FaultConfig, MooncakeTier, S3Tier, ValkeyTier
from sgkv.metrics import Metrics


@dataclass(frozen=True, slots=True)
class TierObserver:
    """Hands one tier's calls to the metrics."""

    metrics: Metrics
    tier: str

    def observe(self, op: str, seconds: float, outcomes: Mapping[Status, int], moved: int) -> None:
        by_name = {status.value: count for status, count in outcomes.items()}
        self.metrics.observe(op, self.tier, seconds, by_name, moved)


def wrap(
    backend: Backend, tier: DiskTier | MooncakeTier | S3Tier | ValkeyTier, metrics: Metrics | None
) -> Backend:
    """`backend` as its configuration wants it met: slowed down, failing, guarded, measured."""
    if tier.simulate is not None:
        backend = Simulated(
            backend,
            latency_s=tier.simulate.latency,
            bandwidth_bytes_s=tier.simulate.bandwidth or float("inf"),
        )
    if tier.faults is not None:
        backend = Faulty(backend, _rules(tier.faults), seed=tier.faults.seed)
    backend = Guarded(
        backend,
        contains_deadline=tier.deadlines.contains,
        get_deadline=tier.deadlines.get,
        put_deadline=tier.deadlines.put,
        breaker=BreakerPolicy(
            consecutive_failures=tier.breaker.failures,
            cooldown_s=tier.breaker.cooldown,
            max_cooldown_s=tier.breaker.max_cooldown,
        ),
        max_inflight=tier.max_inflight or tier.usual_inflight,
    )
    return Metered(backend, TierObserver(metrics, tier.name)) if metrics else backend


def _rules(faults: FaultConfig) -> list[FaultRule]:
    rules = [
        FaultRule(Fault.RAISE, probability=faults.error),
        FaultRule(Fault.HANG, probability=faults.hang),
        FaultRule(Fault.FLIP, frozenset({"get"}), probability=faults.corrupt),
        FaultRule(
            Fault.STATUS, frozenset({"contains", "get"}), probability=faults.absent, status=Status.ABSENT
        ),
    ]
    return [rule for rule in rules if rule.probability]
