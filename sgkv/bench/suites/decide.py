"""What a decision costs: whether to load, and what to evict."""

from __future__ import annotations

from collections.abc import Iterator

from sgkv.backends.eviction import EvictionPolicy, make_policy
from sgkv.bench.effort import Effort
from sgkv.bench.records import Bar, Record
from sgkv.bench.scratch import Scratch
from sgkv.bench.timing import interleave
from sgkv.decide import Gate, Mode, Prefill, TierSpeed
from sgkv.decide.gate import Reach

_DECISIONS = 1000
_BLOBS = 4096
_NEW = 4096


def measure(effort: Effort, scratch: Scratch) -> Iterator[Record]:
    """``gate``: one decision over three tiers; ``evict_*``: one blob in and one out, against `lru`."""
    gate, reaches = _gate(), [Reach("cpu", 100), Reach("disk", 200), Reach("s3", 400)]

    def decide() -> None:
        for _ in range(_DECISIONS):
            gate.decide(reaches, 1 << 20, 64)

    policies = {name: make_policy(name) for name in ("lru", "s3fifo", "reuse")}
    for policy in policies.values():
        for blob in range(_BLOBS):
            policy.admit(f"old{blob}", 1)
    turns = {name: iter(range(1_000_000)) for name in policies}
    jobs = {
        name: lambda policy=policy, name=name: _churn(policy, next(turns[name]))
        for name, policy in policies.items()
    }
    series = interleave({"gate": decide, **jobs}, effort.times(4))
    yield Record(
        "decide", "gate", series["gate"].wall / _DECISIONS * 1e6, "us", bars=(Bar("value", "<=", 20, "us"),)
    )
    for name in policies:
        ratio = None if name == "lru" else series[name].speed_over(series["lru"])
        yield Record("decide", f"evict_{name}", series[name].wall / _NEW * 1e6, "us", ratio_to_raw=ratio)


def _gate() -> Gate:
    speeds = {"disk": TierSpeed(), "s3": TierSpeed()}
    for speed in speeds.values():
        for size in (1 << 20, 1 << 24, 1 << 27):
            speed.began(size)
            speed.ended(size, size / 1e9, whole=True)
    return Gate(Mode.ON, Prefill(20_000, 120_000), speeds)


def _churn(policy: EvictionPolicy, turn: int) -> None:
    for blob in range(_NEW):
        (victim,) = policy.victims(1)
        policy.remove(victim)
        policy.admit(f"{turn}.{blob}", 1)
