"""What a configuration says that works, but that nobody wants in production."""

from __future__ import annotations

from collections.abc import Iterator

from sgkv.config import Config, ResolvedConfig, ResolvedCpu, ResolvedDisk
from sgkv.config.tiers import AnyTier
from sgkv.config.units import approximate_size
from sgkv.doctor.finding import Finding, note, ok, problem

TOPIC = "configuration"
_SMALL_STORE = 256 << 20
"""Bytes that a single long prompt of a small model fills."""
_HASTY = 0.02
"""Seconds: a lookup waits for Python's interpreter lock a few milliseconds at a time."""
_PATIENT = 100
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})
_SIMILAR = 1.5
"""A slower tier that is hardly larger than the one above it keeps little that is not there, too."""


def examine(resolved: ResolvedConfig) -> Iterator[Finding]:
    """Of a configuration that `resolve` takes."""
    config = resolved.config
    yield ok(TOPIC, f"tiers: {', '.join(tier.name for tier in config.tiers)}; tenant {config.tenant!r}")
    for warning in resolved.warnings:
        yield note(TOPIC, warning)
    for index, tier in enumerate(config.tiers):
        yield from _tier(f"tiers.{index}", tier)
    yield from _sizes(resolved)
    yield from _deadlines(config)
    yield from _lifetimes(config)
    yield from _exposure(config)


def _tier(field: str, tier: AnyTier) -> Iterator[Finding]:
    if tier.faults is not None:
        yield problem(
            TOPIC, f"{field}.faults makes the tier {tier.name!r} fail on purpose", f"remove {field}.faults"
        )
    if tier.simulate is not None:
        yield problem(
            TOPIC,
            f"{field}.simulate makes the tier {tier.name!r} slow on purpose",
            f"remove {field}.simulate",
        )
    if tier.breaker.failures > _PATIENT:
        yield note(
            TOPIC,
            f"{field}.breaker.failures is {tier.breaker.failures}: a dead tier costs as many deadlines "
            "before it is left alone",
            "5 is the default",
        )


def _sizes(resolved: ResolvedConfig) -> Iterator[Finding]:
    above = 0
    for index, tier in enumerate(resolved.tiers):
        if isinstance(tier, ResolvedCpu | ResolvedDisk):
            if tier.capacity < _SMALL_STORE:
                yield note(
                    TOPIC,
                    f"tiers.{index} holds {approximate_size(tier.capacity)}: a few long prompts fill it",
                    "an 8B model of bf16 takes 128 KiB a token",
                )
            if above and tier.capacity < above * _SIMILAR:
                yield note(
                    TOPIC,
                    f"tiers.{index} is hardly larger than the tier above it, whose pages it holds as well",
                    "make it several times as large, or leave one of the two out",
                )
            above = tier.capacity


def _deadlines(config: Config) -> Iterator[Finding]:
    if config.engine.exists_deadline < _HASTY:
        yield problem(
            TOPIC,
            f"engine.exists_deadline is {config.engine.exists_deadline * 1000:.0f} ms: on a busy engine most "
            "lookups end as misses",
            "250ms is the default",
        )
    for index, tier in enumerate(config.tiers):
        if tier.deadlines.get > config.engine.get_deadline:
            yield note(
                TOPIC,
                f"tiers.{index}.deadlines.get is longer than engine.get_deadline, which ends the call first",
                "raise engine.get_deadline, or lower the tier's",
            )


def _lifetimes(config: Config) -> Iterator[Finding]:
    if config.ttl is not None and config.ttl <= config.write_behind.tail_delay:
        yield problem(
            TOPIC,
            "ttl is shorter than write_behind.tail_delay: the ends of prompts expire before they are written",
            "ttl is meant for hours or days",
        )


def _exposure(config: Config) -> Iterator[Finding]:
    rollout, node = config.rollout, config.node
    if rollout.mode != "all":
        share = "nothing" if rollout.mode == "shadow" else f"{rollout.percent:g} % of the prompts"
        yield note(
            TOPIC,
            f"rollout.mode is {rollout.mode}: of what is stored {share} is loaded",
            "docs/rollout.md has the steps to mode: all",
        )
    if node.metrics_port is not None and node.metrics_address not in _LOCAL:
        yield note(
            TOPIC,
            f"node.metrics_address {node.metrics_address} shows the daemon's metrics to whoever reaches it",
            "let a firewall or a NetworkPolicy keep others away, or listen on 127.0.0.1",
        )
